"""Laws of the solver, on the packaged base and on small universes made by hand."""

import re
import subprocess
import sys
from collections.abc import Iterator, Mapping
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from muster.knowledge.query import branch_number
from muster.knowledge.schema import (
    Architecture,
    BranchKind,
    Channel,
    Confidence,
    CudaToolkit,
    DriverBranch,
    DriverRelease,
    Family,
    KnowledgeBase,
    ModuleRequirement,
    OpenModules,
    Provenance,
)
from muster.model.fact import Unknown
from muster.model.policy import ReleaseLine, WantBranch, WantNewest, WantVersion
from muster.model.ranges import parse_ranges
from muster.model.stack import PackagePin
from muster.model.versions.cuda import CudaVersion
from muster.model.versions.driver import DriverVersion
from muster.solver.explain import Because, NoCandidate, Observed, RuleSays, Wanted, leaves
from muster.solver.problem import Answer, Demand, Kernel, NodeClass, NoSolution, Offers, Rule, Solution
from muster.solver.registry import RULES
from muster.solver.search import solve
from muster.solver.words import DOUBT, body, paragraphs, sentence
from tests.support.solving import changed, demand, kind, scenarios

WRITTEN = Provenance(("https://example.org/notes",), "2026-11-30", Confidence.STATED)
FAMILIES = ("OLD", "MID", "NEW")
BRANCHES = (500, 510, 520)


def universe(
    last: Mapping[str, int | None],
    first: Mapping[str, int | None],
    needs: Mapping[str, ModuleRequirement],
    channels: Mapping[str, Channel],
    lines: Mapping[int, BranchKind],
    *,
    confidence: Confidence = Confidence.STATED,
) -> KnowledgeBase:
    """Three branches of two builds each, one CUDA major a branch, three architectures of one family each."""
    provenance = replace(WRITTEN, confidence=confidence)
    releases = {}
    for text, channel in channels.items():
        version = DriverVersion.parse(text)
        arches = ("x86_64",) if text.endswith(".2") else None
        releases[version] = DriverRelease(version, version.branch, channel, None, arches, None, provenance)
    branches = {
        f"R{n}": DriverBranch(
            f"R{n}", n, lines[n], None, None, None, 11 + at, CudaVersion.parse(f"{11 + at}.0"), confidence, (), (), provenance,
        )
        for at, n in enumerate(BRANCHES)
    }  # fmt: skip
    toolkits = {
        CudaVersion.parse(f"{11 + at}.0"): CudaToolkit(
            CudaVersion.parse(f"{11 + at}.0"),
            f"{11 + at}.0",
            None,
            None,
            None,
            None,
            None,
            (f"{5 + at}.0", "9.0"),
            WRITTEN,
        )
        for at in range(3)
    }
    architectures = {
        name: Architecture(
            name, (f"{5 + at}.0",), named(first[name]), confidence, named(last[name]), OpenModules(needs[name], None, None, (), provenance),
            (Family(name, provenance),), (), provenance,
        )
        for at, name in enumerate(FAMILIES)
    }  # fmt: skip
    return KnowledgeBase("hand", branches, releases, toolkits, architectures, ("R520", provenance), ())


def named(number: int | None) -> str | None:
    return None if number is None else f"R{number}"


BUILDS = tuple(f"{n}.{build}" for n in BRANCHES for build in (1, 2))
BOUND = st.none() | st.sampled_from(BRANCHES)
UNIVERSES = st.builds(
    universe,
    last=st.fixed_dictionaries(dict.fromkeys(FAMILIES, BOUND)),
    first=st.fixed_dictionaries(dict.fromkeys(FAMILIES, BOUND)),
    needs=st.fixed_dictionaries(dict.fromkeys(FAMILIES, st.sampled_from(ModuleRequirement))),
    channels=st.fixed_dictionaries(dict.fromkeys(BUILDS, st.sampled_from(Channel))),
    lines=st.fixed_dictionaries(dict.fromkeys(BRANCHES, st.sampled_from(BranchKind))),
)
UNSEEN = Unknown("not seen")
KERNELS = st.lists(
    st.builds(
        Kernel,
        st.sampled_from(("6.1.0-1", "6.1.0-2")),
        st.sampled_from((True, False, UNSEEN)),
        st.sampled_from(("none", "our key", "their key", UNSEEN)),
    ),
    max_size=2,
    unique_by=lambda each: each.name,
).map(tuple)
PINS = tuple(PackagePin(name, "520.1-1") for name in ("libcuda1", "nvidia-kernel-dkms"))
OFFERS = st.builds(
    Offers,
    st.lists(st.sampled_from([f"{build}-1" for build in BUILDS]), unique=True).map(tuple),
    st.sampled_from(((), (("500.1-1", ("libcuda1",)),))),
    st.sampled_from(((), PINS[:1])),
)
OFTEN = st.integers(0, 3)


def mostly(usual: object, seldom: st.SearchStrategy[object]) -> st.SearchStrategy[object]:
    """Mostly what does no harm: else no node would be admitted, and the laws would speak of refusals alone."""
    return OFTEN.flatmap(lambda at: seldom if at == 0 else st.just(usual))


KINDS = st.builds(
    changed,
    st.builds(
        kind,
        product=st.sampled_from((*FAMILIES, "ELSE", "OLD, NEW")),
        arch=st.sampled_from(("x86_64", "aarch64")),
        flavour=st.sampled_from(("open", "proprietary")),
        driver=st.sampled_from(BUILDS),
    ),
    packages=mostly(PINS, st.just(())),
    root=mostly("", st.sampled_from(("overlay", UNSEEN))),
    runfile=mostly(False, st.sampled_from((True, UNSEEN))),
    secure_boot=mostly(False, st.sampled_from((True, UNSEEN))),
    enrolled=st.sampled_from((("our key",), UNSEEN)),
    kernels=mostly((), KERNELS | st.just(UNSEEN)),
    offers=mostly(UNSEEN, OFFERS),
)
DEMANDS = st.builds(
    Demand,
    st.just("train"),
    st.sampled_from(
        [WantVersion(DriverVersion.parse(text)) for text in (*BUILDS, "530.1")]
        + [WantBranch(f"R{n}") for n in (*BRANCHES, 530)]
        + [WantNewest(line) for line in ReleaseLine]
    ),
    st.sampled_from((None, "open", "proprietary")),
    st.sampled_from((None, ">=11.0", ">=12.0", ">=13.0", "<12.0", ">=14.0")),
)


def drives(driver: DriverVersion, product: str, node: NodeClass, asked: Demand, base: KnowledgeBase) -> bool:
    """Written from the design, and not from the rules: does this driver fit a GPU, with the node's modules and the pool's CUDA?"""
    family = base.architectures.get(product)
    if family is None:
        return False
    number = branch_number(driver.branch)
    within = (family.first_branch is None or number >= branch_number(family.first_branch)) and (
        family.last_branch is None or number <= branch_number(family.last_branch)
    )
    modules = {"open", "proprietary"}
    if family.open_modules.requirement is ModuleRequirement.REQUIRED or number >= 520:
        modules -= {"proprietary"}
    if family.open_modules.requirement is ModuleRequirement.UNSUPPORTED:
        modules -= {"open"}
    ranges = None if asked.cuda is None else parse_ranges(asked.cuda, CudaVersion)
    major = {500: 11, 510: 12, 520: 13}[number]
    runs = ranges is None or any(
        each in ranges and each.numbers[0] <= major and float(family.compute_capabilities[0]) >= float(toolkit.compute_capabilities[0])
        for each, toolkit in base.toolkits.items()
    )  # fmt: skip
    return within and node.flavour in modules and runs


def boots(node: NodeClass) -> bool:
    """Will the node come up with the new module on each kernel it can boot?"""
    if node.kernels == UNSEEN or node.secure_boot == UNSEEN:
        return not node.packages and node.secure_boot is False
    assert isinstance(node.kernels, tuple)
    if not node.packages:
        return True
    signed = node.secure_boot is False or all(
        each.signer == "our key" and node.enrolled == ("our key",) for each in node.kernels
    )
    return signed and all(each.headers is True for each in node.kernels)


def comes_and_goes(driver: DriverVersion, node: NodeClass) -> bool:
    """Can the packages of the new driver be had, and those of today again?"""
    if node.offers == UNSEEN or driver.text == node.driver:
        return True
    assert isinstance(node.offers, Offers)
    return f"{driver.text}-1" in node.offers.whole and not node.offers.lost


def admissible(driver: DriverVersion, node: NodeClass, asked: Demand, base: KnowledgeBase) -> bool:
    """Written from the design, and not from the rules: may this driver be brought onto this node?"""
    release = base.releases.get(driver)
    if release is None or release.channel not in (Channel.DATACENTER, Channel.NEW_FEATURE, Channel.UNIX):
        return False
    built = release.architectures is None or node.arch in release.architectures
    keeps = asked.flavour in (None, node.flavour)
    lasting = node.root == "" and node.runfile is False and bool(node.packages)
    gpus = all(drives(driver, product, node, asked, base) for product in node.product.split(", "))
    return built and keeps and lasting and gpus and boots(node) and comes_and_goes(driver, node)


def wished(asked: Demand, base: KnowledgeBase) -> Iterator[DriverVersion]:
    """Every driver that the wish allows, in no order of preference."""
    for version, release in base.releases.items():
        fleet = release.channel in (Channel.DATACENTER, Channel.NEW_FEATURE)
        match asked.wish:
            case WantVersion(version=exact):
                if version == exact:
                    yield version
            case WantBranch(branch=branch):
                if fleet and release.branch == branch:
                    yield version
            case WantNewest(line=line):
                word = {"long-term-support": "LTSB", "production": "PB"}[line.value]
                if fleet and base.branches[release.branch].kind.value == word:
                    yield version


@given(UNIVERSES, KINDS, DEMANDS)
@settings(max_examples=300, deadline=None)
def test_the_answer_is_the_newest_that_brute_force_finds(base: KnowledgeBase, node: NodeClass, asked: Demand) -> None:
    found = [driver for driver in wished(asked, base) if admissible(driver, node, asked, base)]
    answer = solve(node, asked, base)
    if isinstance(answer, Solution):
        assert answer.chosen.driver == max(found)
    else:
        assert found == []


@given(UNIVERSES, KINDS, DEMANDS)
@settings(max_examples=100, deadline=None)
def test_asking_for_less_never_makes_it_unsolvable(base: KnowledgeBase, node: NodeClass, asked: Demand) -> None:
    if isinstance(solve(node, asked, base), NoSolution):
        return
    for less in (replace(asked, cuda=None), replace(asked, flavour=None), replace(asked, cuda=None, flavour=None)):
        assert isinstance(solve(node, less, base), Solution)


@given(UNIVERSES, KINDS, DEMANDS)
@settings(max_examples=50, deadline=None)
def test_the_same_question_has_the_same_answer(base: KnowledgeBase, node: NodeClass, asked: Demand) -> None:
    assert solve(node, asked, base) == solve(node, asked, base)


SAYS: Mapping[str, str] = {
    "not-decided-from-memory": "product-is-known",
    "branch-drives-architecture": "product-is-known",
}
"""What a rule says under another name than its own."""

FIELDS: Mapping[str, tuple[str, ...]] = {
    "gpu.product": ("product",), "arch": ("arch",), "module.nvidia.flavour": ("flavour",), "module.nvidia.disk_version": ("driver",),
    "module.nvidia.loaded_version": ("loaded",), "root_fs.kind": ("root",), "runfile.installed": ("runfile",),
    "kernel.bootable": ("kernels",), "kernel[].headers": ("kernels",), "kernel[].nvidia.signer": ("kernels",),
    "secure_boot.enabled": ("secure_boot",), "secure_boot.enrolled": ("enrolled",), "gpu.count": ("switches",),
    "fabric_manager.present": ("switches",), "fabric_manager.version": ("switches",), "gpu[].fabric.state": ("switches",),
    "package[].offered": ("offers", "packages"), "repository.offers": ("offers", "packages"),
    "package[].state": ("packages", "prebuilt", "compat"),
    "package[].version": ("packages",), "cuda[].installed": ("toolkits",), "gpu.confidential": ("confidential",),
    "service.present": ("switches",), "pci.nvswitches": ("switches",),
    "os.id": ("os",), "kernel.running": ("kernel",),
}  # fmt: skip
"""Which parts of a class a leaf is about; list keys left out."""


def rebuilt(because: Because, node: NodeClass, asked: Demand) -> tuple[NodeClass, Demand, tuple[Rule, ...]]:
    """The problem that the leaves alone describe: what is not among them is whatever would do no harm."""
    told = list(leaves(because))
    seen = {
        field for leaf in told if isinstance(leaf, Observed) for field in FIELDS[re.sub(r"\[.*\]", "[]", leaf.path)]
    }
    wanted = {
        leaf.path.partition(".driver")[2] or leaf.path.rpartition(".")[2] for leaf in told if isinstance(leaf, Wanted)
    }
    spoke = {SAYS.get(leaf.rule, leaf.rule) for leaf in told if isinstance(leaf, RuleSays)}
    if any(isinstance(leaf, NoCandidate) for leaf in told) or not spoke:
        spoke = {rule.name for rule in RULES}
    harmless = kind(product="nobody said", arch="nobody said", flavour=asked.flavour or "open", driver="1.1", loaded="")
    less = replace(
        asked, cuda=asked.cuda if "cuda" in wanted else None, flavour=asked.flavour if ".flavour" in wanted else None
    )
    return (
        replace(harmless, **{field: getattr(node, field) for field in seen}),
        less,
        tuple(rule for rule in RULES if rule.name in spoke),
    )


REFUSED = {name: each for name, each in scenarios().items() if "refused" in each.expect}


@pytest.mark.parametrize("name", REFUSED)
def test_what_a_refusal_names_is_enough_to_refuse(name: str) -> None:
    scenario = REFUSED[name]
    answer = solve(scenario.kind, scenario.demand, scenario.base)
    assert isinstance(answer, NoSolution)
    told = list(leaves(answer.because))
    assert any(isinstance(leaf, Wanted) and leaf.path == "pools.train.driver" for leaf in told)
    assert any(isinstance(leaf, RuleSays | NoCandidate) for leaf in told)
    node, asked, rules = rebuilt(answer.because, scenario.kind, scenario.demand)
    assert isinstance(solve(node, asked, scenario.base, rules), NoSolution)


@given(UNIVERSES, KINDS, DEMANDS)
@settings(max_examples=200, deadline=None)
def test_in_small_universes_too_what_a_refusal_names_is_enough(
    base: KnowledgeBase, node: NodeClass, asked: Demand
) -> None:
    answer = solve(node, asked, base)
    if isinstance(answer, NoSolution):
        blank, less, rules = rebuilt(answer.because, node, asked)
        assert isinstance(solve(blank, less, base, rules), NoSolution)


def every_answer(base: KnowledgeBase) -> Iterator[Answer]:
    for family in FAMILIES:
        for wish in BUILDS:
            for modules in ("open", "proprietary"):
                yield solve(
                    kind(product=family, flavour=modules, driver="520.1"), demand(want=wish, cuda=">=12.0"), base
                )


@pytest.mark.parametrize("confidence", [Confidence.MEMORY, Confidence.CONFLICTING])
def test_what_rests_on_memory_is_neither_admitted_nor_refused_in_silence(confidence: Confidence) -> None:
    base = universe(
        last={"OLD": 510, "MID": None, "NEW": None}, first={"OLD": None, "MID": 500, "NEW": 510},
        needs=dict(zip(FAMILIES, ModuleRequirement, strict=True)), channels=dict.fromkeys(BUILDS, Channel.DATACENTER),
        lines=dict.fromkeys(BRANCHES, BranchKind.PRODUCTION), confidence=confidence,
    )  # fmt: skip
    answers = list(every_answer(base))
    assert {type(answer) for answer in answers} == {Solution, NoSolution}
    for answer in answers:
        said = (
            [sentence(rule) for rule in answer.because] if isinstance(answer, Solution) else [sentence(answer.because)]
        )
        assert any(DOUBT in each for each in said), said


def test_what_is_written_is_said_without_doubt() -> None:
    base = universe(
        last={"OLD": 510, "MID": None, "NEW": None}, first={"OLD": None, "MID": 500, "NEW": 510},
        needs=dict(zip(FAMILIES, ModuleRequirement, strict=True)), channels=dict.fromkeys(BUILDS, Channel.DATACENTER),
        lines=dict.fromkeys(BRANCHES, BranchKind.PRODUCTION),
    )  # fmt: skip
    for answer in every_answer(base):
        tree = answer.because if isinstance(answer, NoSolution) else Because("", answer.because)
        assert not any(DOUBT in line for line in paragraphs(tree))


@pytest.mark.parametrize("name", scenarios())
def test_every_leaf_of_an_answer_is_in_its_words_and_in_its_json(name: str) -> None:
    scenario = scenarios()[name]
    answer = solve(scenario.kind, scenario.demand, scenario.base)
    tree = answer.because if isinstance(answer, NoSolution) else Because("admitted", answer.because)
    said, written = "\n".join(paragraphs(tree)), str(body(tree))
    for leaf in leaves(tree):
        assert sentence(leaf) in said
        if isinstance(leaf, RuleSays):
            assert repr(leaf.says)[1:-1] in written


ASK_ALL = """
import sys
from tests.support.solving import outcome, scenarios
from muster.solver.search import ranked, solve
for name, each in scenarios().items():
    print(name, outcome(solve(each.kind, each.demand, each.base)), solve(each.kind, each.demand, each.base))
    print([found.chosen.driver.text for found in ranked(each.kind, each.demand, each.base)])
"""


def test_the_same_questions_have_the_same_answers_whatever_the_hash_seed() -> None:
    root = Path(__file__).parents[2]
    said = {
        subprocess.run(
            [sys.executable, "-c", ASK_ALL],
            cwd=root,
            env={"PATH": "/usr/bin:/bin", "PYTHONPATH": f"{root / 'src'}:{root}", "PYTHONHASHSEED": seed},
            capture_output=True,
            check=True,
            timeout=600,
        ).stdout
        for seed in ("0", "1", "4242")
    }
    assert len(said) == 1
    assert len(next(iter(said)).splitlines()) == 2 * len(scenarios())
