"""A driver nobody has published, or published only as a trial, is not brought onto a fleet."""

from muster.knowledge.query import nearest_releases
from muster.knowledge.schema import Channel
from muster.solver.doubt import doubt
from muster.solver.explain import Because, Hint, NoCandidate, RuleSays, Wanted
from muster.solver.problem import Judgement, Question, Refusal

_TRIALS = (Channel.BETA, Channel.VULKAN_BETA, Channel.DEVELOPER)


def judge(question: Question) -> Judgement:
    """The release is in the knowledge base, and is not a beta or a toolkit-bundled developer build."""
    driver = question.candidate.driver
    wanted = Wanted(f"pools.{question.demand.pool}.driver", driver.text)
    release = question.known.releases.get(driver.plain)
    if release is None:
        near = nearest_releases(question.known, driver)
        names = ", ".join(version.text for version in near)
        because = Because(
            f"{driver.text} is not a driver that is known", (wanted, NoCandidate(f"no release {driver.plain.text}"))
        )
        return Refusal(
            because,
            (Hint(f"the nearest known are {names}"), Hint("newer knowledge comes with a newer release of Muster")),
        )
    source = ", ".join(release.provenance.sources)
    says = RuleSays(
        "driver-is-known", f"{driver.plain.text} is a release of {release.branch} ({release.channel.value})", source,
        doubt((f"the record of {driver.plain.text}", release.provenance.confidence)),
    )  # fmt: skip
    if release.channel in _TRIALS:
        because = Because(f"{driver.text} was published as {release.channel.value}, not for fleets", (wanted, says))
        return Refusal(because, (Hint(f"choose a data-centre build of {release.branch}"),))
    return says


RULE = judge
