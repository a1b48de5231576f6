"""A driver nobody has published, or published only as a trial, is not brought onto a fleet."""

from muster.knowledge.query import nearest_releases
from muster.knowledge.schema import Channel
from muster.solver.doubt import doubt
from muster.solver.explain import Because, Hint, NoCandidate, RuleSays, Wanted
from muster.solver.hints import NEWER_KNOWLEDGE
from muster.solver.problem import Judgement, Question, Refusal, Rule

_TRIALS = (Channel.BETA, Channel.VULKAN_BETA, Channel.DEVELOPER)


def _published(question: Question) -> Judgement:
    """The release is in the knowledge base."""
    driver = question.candidate.driver
    if driver.plain in question.known.releases:
        return (_says(question),)
    wanted = Wanted(f"pools.{question.demand.pool}.driver", driver.text)
    near = ", ".join(version.text for version in nearest_releases(question.known, driver))
    because = Because(
        f"{driver.text} is not a driver that is known", (wanted, NoCandidate(f"no release {driver.plain.text}"))
    )
    return Refusal(because, (Hint(f"the nearest known are {near}"), NEWER_KNOWLEDGE))


def _for_fleets(question: Question) -> Judgement:
    """The release is not a beta or a toolkit-bundled developer build."""
    driver = question.candidate.driver
    release = question.known.releases.get(driver.plain)
    if release is None or release.channel not in _TRIALS:
        return ()
    wanted = Wanted(f"pools.{question.demand.pool}.driver", driver.text)
    says = RuleSays(
        "published-for-fleets", f"{release.version.text} is a {release.channel.value} build of {release.branch}",
        ", ".join(release.provenance.sources), doubt((f"the record of {release.version.text}", release.provenance.confidence)),
    )  # fmt: skip
    because = Because(f"{driver.text} was published as {release.channel.value}, not for fleets", (wanted, says))
    return Refusal(because, (Hint(f"choose a data-centre build of {release.branch}"),))


def _says(question: Question) -> RuleSays:
    release = question.known.releases[question.candidate.driver.plain]
    return RuleSays(
        "driver-is-known",
        f"{release.version.text} is a release of {release.branch} ({release.channel.value})",
        ", ".join(release.provenance.sources),
        doubt((f"the record of {release.version.text}", release.provenance.confidence)),
    )


RULES = (Rule("driver-is-known", _published), Rule("published-for-fleets", _for_fleets))
