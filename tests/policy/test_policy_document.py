"""`fleet.yaml` to a Policy: the worked example, every kind of broken file, and text of any shape."""

import re
from decimal import Decimal
from pathlib import Path

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from muster.model.errors import DocumentFaults
from muster.model.policy import (
    AnsibleSource,
    DirectorySource,
    Drain,
    DrainPolicy,
    DriverPolicy,
    Flavour,
    Floor,
    Holds,
    HostsSource,
    LocalSource,
    Match,
    MaxUnavailable,
    Permission,
    Policy,
    Pool,
    ReleaseLine,
    Rollout,
    Security,
    Severity,
    SlurmSource,
    Ssh,
    Tier,
    Validation,
    WantBranch,
    WantNewest,
    WantVersion,
)
from muster.model.quantities import Amount, Window
from muster.model.ranges import parse_ranges
from muster.model.versions.cuda import CudaVersion
from muster.model.versions.driver import DriverVersion
from muster.planner.policy import policy_from_document

SCENARIOS = Path(__file__).parent.parent / "scenarios" / "policy"
BROKEN = sorted((SCENARIOS / "broken").glob("*.yaml"))
WORKED = (SCENARIOS / "worked_example.yaml").read_text()
MINIMAL = "schema: 1\nfleet: lab\ninventory:\n  - local: true\npools:\n  all:\n    match: {gpu: '*'}\n"


def test_the_worked_example_of_the_design_parses_to_exactly_this() -> None:
    train = Pool(
        name="train",
        match=(Match("gpu", ("H100",)), Match("slurm.partition", ("train",))),
        tier=Tier.CRITICAL,
        driver=DriverPolicy(WantVersion(DriverVersion.parse("580.126.20")), Flavour.OPEN),
        cuda=parse_ranges(">=12.4", CudaVersion),
        drain=Drain(DrainPolicy.REQUEUE, "USR1", 15 * 60, 24 * 3600),
        max_unavailable=MaxUnavailable(Amount.parse("5%"), Amount(count=2), None),
        windows=(Window((5,), 120, 480, "Europe/Berlin"),),
        reload=Permission.ALLOWED,
    )
    inference = Pool(
        name="inference",
        match=(Match("label.role", ("inference",)),),
        tier=Tier.STANDARD,
        driver=DriverPolicy(WantBranch("R580"), None),
        drain=Drain(DrainPolicy.WAIT, None, 0, 2 * 3600),
        max_unavailable=MaxUnavailable(Amount.parse("10%")),
    )
    assert policy_from_document(WORKED, "fleet.yaml") == Policy(
        fleet="prod-eu",
        inventory=(AnsibleSource("inventory.ini"), SlurmSource(("train", "batch"))),
        pools=(train, inference),
        ssh=Ssh(user="muster", sudo=True, config="~/.ssh/config", concurrency=200),
        rollout=Rollout(
            True, tuple(map(Amount.parse, ("5%", "25%", "100%"))), 2 * 3600, 24 * 3600, Amount.parse("5%"), 1
        ),
        holds=Holds(True, True, Permission.FORBIDDEN, Permission.FORBIDDEN),
        security=Security(Severity.HIGH),
        validate=Validation(True, None, (Floor("matmul_tflops", None), Floor("allreduce_gbps", None))),
    )


def test_what_is_not_said_is_the_stated_default() -> None:
    policy = policy_from_document(MINIMAL, "fleet.yaml")
    assert policy == Policy("lab", (LocalSource(),), (Pool("all", (Match("gpu", ("*",)),)),))
    assert policy.pools[0].driver is None
    assert policy.pools[0].max_unavailable.pool == Amount(count=1)
    assert policy.rollout.approvals == 1


def test_every_key_the_worked_example_leaves_out_is_read_too() -> None:
    text = """\
schema: 1
fleet: lab
inventory: [{hosts: hosts.txt}, {directory: nodes}, {slurm: {}}]
ssh: {port: 2222, connect_timeout: 3s}
pools:
  dev:
    match: {gpu: [A100, H100], "gpu[*].ecc.mode": enabled, arch: x86_64}
    tier: development
    driver: {newest: long-term-support, flavour: proprietary}
    drain: {policy: evict, signal: SIGTERM}
    max_unavailable: {tenant: 0.5%}
    windows: ["Fri-Mon 22:00-06:00 UTC", daily 12:00-13:00 America/New_York]
    reload: forbidden
rollout: {stages: [50%, 100%], control: none, approvals: 0}
validate: {builtin: false, command: check --quick 'two words', floors: {own_metric: 12.5}}
"""
    policy = policy_from_document(text, "fleet.yaml")
    assert policy.inventory == (HostsSource("hosts.txt"), DirectorySource("nodes"), SlurmSource())
    assert policy.ssh == Ssh(port=2222, connect_timeout_s=3)
    (dev,) = policy.pools
    assert dev.match == (
        Match("gpu", ("A100", "H100")),
        Match("gpu[*].ecc.mode", ("enabled",)),
        Match("arch", ("x86_64",)),
    )
    assert dev.driver == DriverPolicy(WantNewest(ReleaseLine.LONG_TERM_SUPPORT), Flavour.PROPRIETARY)
    assert dev.drain == Drain(DrainPolicy.EVICT, "TERM")
    assert dev.max_unavailable == MaxUnavailable(Amount(count=1), None, Amount(basis_points=50))
    assert dev.windows == (
        Window((0, 4, 5, 6), 22 * 60, 30 * 60, "UTC"),
        Window(tuple(range(7)), 720, 780, "America/New_York"),
    )
    assert dev.reload is Permission.FORBIDDEN
    assert policy.rollout == Rollout(False, (Amount.parse("50%"), Amount.parse("100%")), control=None, approvals=0)
    assert policy.validate == Validation(
        False, ("check", "--quick", "two words"), (Floor("own_metric", Decimal("12.5")),)
    )


def test_the_revision_follows_the_content_and_not_the_layout() -> None:
    first = policy_from_document(MINIMAL, "a.yaml")
    relaid = "# a comment\nfleet: 'lab'\nschema: 1\npools: {all: {match: {gpu: \"*\"}}}\ninventory: [local: true]\n"
    assert policy_from_document(relaid, "b.yaml").revision == first.revision
    assert policy_from_document(MINIMAL.replace("lab", "lob"), "a.yaml").revision != first.revision


def test_a_policy_knows_the_lines_of_what_it_says() -> None:
    lines = policy_from_document(WORKED, "fleet.yaml").lines
    assert (
        lines["pools.train.driver"]
        == WORKED.splitlines().index(next(line for line in WORKED.splitlines() if "want:" in line)) + 1
    )
    assert lines["inventory.1"] == lines["inventory.0"] + 1


@pytest.mark.parametrize("path", BROKEN, ids=[path.stem for path in BROKEN])
def test_a_broken_policy_is_refused_with_line_and_hint(path: Path) -> None:
    """Each file ends in comments `# expect LINE: MESSAGE (HINT)`: all its faults and no other."""
    text = path.read_text()
    expected = [
        f"fleet.yaml:{line.removeprefix('# expect ')}" for line in text.splitlines() if line.startswith("# expect ")
    ]
    with pytest.raises(DocumentFaults) as raised:
        policy_from_document(text, "fleet.yaml")
    assert str(raised.value).splitlines() == expected


def test_every_fault_of_a_broken_policy_carries_a_hint() -> None:
    assert len(BROKEN) >= 40
    for path in BROKEN:
        with pytest.raises(DocumentFaults) as raised:
            policy_from_document(path.read_text(), "fleet.yaml")
        assert [fault for fault in raised.value.faults if not fault.endswith(")")] == [], path.name


WORDS = st.sampled_from(
    ["schema", "1", "fleet", "inventory", "pools", "match", "gpu", "driver", "want", "580.126.20", "stages", "canary",
     "100%", "5%", "drain", "policy", "wait", "windows", "Sat 02:00-08:00 UTC", "null", "~", "", "rollout", "soak",
     "validate", "floors", "learn", "command", "'", "slurm", "partitions", "0", "-1", "٣", "\ud800", "24:00"]
)  # fmt: skip
TREES = st.recursive(
    WORDS, lambda inner: st.lists(inner, max_size=4) | st.dictionaries(WORDS, inner, max_size=6), max_leaves=30
)


def flow(tree: object) -> str:
    """YAML flow text of a tree of strings."""
    if isinstance(tree, dict):
        return "{" + ", ".join(f"{key or '?'}: {flow(value)}" for key, value in tree.items()) + "}"
    if isinstance(tree, list):
        return "[" + ", ".join(map(flow, tree)) + "]"
    return str(tree)


def refused_or_read(text: str) -> None:
    try:
        policy = policy_from_document(text, "fleet.yaml")
    except DocumentFaults as faults:
        assert faults.faults
        assert all(re.match(r"fleet\.yaml:[1-9][0-9]*: .", line) for line in faults.faults)
    else:
        assert isinstance(policy, Policy)


@given(st.text())
@example("\ufeff")
@example("\x00")
@example("\ud800")
@example("[" * 5000)
@example("{" * 100 + "}" * 100)
@example("? [a]\n: b")
@example("--- a\n--- b")
@example("%YAML 3.0\n--- a")
def test_any_text_is_a_policy_or_faults_and_never_another_exception(text: str) -> None:
    refused_or_read(text)


@settings(max_examples=200)
@given(st.dictionaries(st.sampled_from(["fleet", "inventory", "pools", "ssh", "rollout", "holds", "security",
                                        "validate"]), TREES))  # fmt: skip
def test_any_tree_is_a_policy_or_faults_and_never_another_exception(tree: dict[str, object]) -> None:
    refused_or_read("\n".join(["schema: 1", *(f"{key}: {flow(value)}" for key, value in tree.items())]))


@settings(max_examples=200)
@given(st.data())
def test_a_worked_example_with_any_line_broken_is_a_policy_or_faults(data: st.DataObject) -> None:
    lines = WORKED.splitlines()
    index = data.draw(st.integers(0, len(lines) - 1))
    line = lines[index]
    start = data.draw(st.integers(0, len(line)))
    end = data.draw(st.integers(start, len(line)))
    lines[index] = line[:start] + data.draw(st.text(max_size=6)) + line[end:]
    refused_or_read("\n".join(lines))
