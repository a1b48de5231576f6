"""`plan` and `plans` at a terminal: what is said fits a minute, files come back whole or not at all, Slurm is asked and may be away."""

import json
import re
from collections.abc import Mapping, Sequence
from pathlib import Path

import pytest

from muster.backends.store.sqlite import open_store
from muster.model.node import Node
from tests.support.desk import Desk, Said
from tests.support.planning import NEW, OLD, seen
from tests.support.shelf import made_now, put
from tests.support.values import inline

NODES = tuple(f"gpu{number:02d}" for number in range(1, 21))
POLICY = f"""
schema: 1
fleet: lab
inventory:
  - slurm: {{}}
  - ansible: hosts.ini
pools:
  train:
    match: {{slurm.partition: train}}
    tier: critical
    driver: {{want: {NEW}}}
    max_unavailable: {{pool: 25%, rack: 2}}
  dev:
    match: {{slurm.partition: dev}}
    tier: development
    driver: {{want: {NEW}}}
"""
NODE = {"address": "", "hostname": "", "state": "idle", "state_flags": [], "gres": "gpu:8", "reason": ""}


class Cluster:
    """A desk whose Slurm is two programs that print what they were told to."""

    def __init__(self, folder: Path) -> None:
        self.desk = Desk(folder, folder / "muster.db")
        self.bin = folder / "bin"
        self.bin.mkdir()
        self.desk.environment["PATH"] = f"{self.bin}:{self.desk.environment['PATH']}"
        (folder / "fleet.yaml").write_text(POLICY, encoding="utf-8")
        hosts = "".join(f"{name} rack=r{at // 4} tenant=lab{at % 2}\n" for at, name in enumerate(NODES))
        (folder / "hosts.ini").write_text(hosts, encoding="utf-8")

    def slurm(self, jobs: Sequence[str] = (), drained: Mapping[str, str] | None = None) -> None:
        """Slurm answers: these lines of squeue, and these nodes drained for a reason."""
        drained = drained or {}
        nodes = [
            {
                **NODE, "name": name, "address": name, "partitions": ["dev" if at < 4 else "train"],
                "state_flags": ["DRAIN"] if name in drained else [], "reason": drained.get(name, ""),
                "reason_set_by_user": "alice" if name in drained else None,
            }
            for at, name in enumerate(NODES)
        ]  # fmt: skip
        self._program("sinfo", f"cat <<'EOF'\n{json.dumps({'meta': {}, 'errors': [], 'nodes': nodes})}\nEOF\n")
        self._program("squeue", "cat <<'EOF'\n" + "".join(f"{job}\n" for job in jobs) + "EOF\n")

    def away(self) -> None:
        """Slurm does not answer any more."""
        for name in ("sinfo", "squeue", "scontrol"):
            self._program(name, "echo 'slurm_load_node error: Unable to contact slurm controller' >&2\nexit 1\n")

    def _program(self, name: str, text: str) -> None:
        (self.bin / name).write_text(f"#!/bin/sh\n{text}")
        (self.bin / name).chmod(0o755)

    def planned(self, *words: str) -> Said:
        said = self.desk.here("plan", *words)
        assert said.exit_code == 0, said.err + said.out
        return said


@pytest.fixture
def cluster(tmp_path: Path) -> Cluster:
    made = Cluster(tmp_path)
    made.slurm()
    put(made.desk, [made_now(seen(name, {})) for name in NODES])
    return made


def plan_of(said: Said) -> Mapping[str, object]:
    plan = said.body["plan"]
    assert isinstance(plan, dict)
    return plan


def test_jobs_of_slurm_are_kept_together_and_drained_nodes_are_left_to_who_drained_them(cluster: Cluster) -> None:
    gang = "71|RUNNING|4|1-00:00:00|2099-01-01T00:00:00|train|lab|gpu[09-12]"
    cluster.slurm([gang, "72|RUNNING|1|UNLIMITED|NONE|train|lab|gpu13"], {"gpu20": "bad DIMM"})
    plan = plan_of(cluster.planned("--json"))
    parts = {part["node"]: part for part in plan["nodes"]}  # type: ignore[attr-defined]
    assert {name: parts[name]["jobs"] for name in ("gpu09", "gpu12", "gpu13", "gpu14")} == {
        "gpu09": ["71"], "gpu12": ["71"], "gpu13": ["72"], "gpu14": [],
    }  # fmt: skip
    assert [parts[name]["free_at"] for name in ("gpu12", "gpu13", "gpu14")] == [
        "2099-01-01T00:00:00.000Z",
        "unknown",
        "",
    ]
    stages = [set(stage["nodes"]) & {"gpu09", "gpu10", "gpu11", "gpu12"} for stage in plan["stages"]]  # type: ignore[attr-defined]
    assert [len(each) for each in stages if each] == [4]
    (left,) = plan["left_out"]  # type: ignore[misc]
    assert (left["on"], left["subjects"]) == ("owned-by-human", ["gpu20"])
    assert left["detail"] == "is drained in Slurm by alice: bad DIMM"
    assert not any(note["severity"] == "fatal" for note in cluster.desk.here("plans", "lint", "last", "--json").data)  # type: ignore[attr-defined]


def test_a_slurm_that_is_away_stops_no_command_and_none_of_its_nodes_is_planned(cluster: Cluster) -> None:
    store_nodes(cluster)
    cluster.away()
    said = cluster.desk.here("plan", "--json")
    assert said.exit_code == 5
    plan = plan_of(said)
    assert plan["nodes"] == []
    (left,) = plan["left_out"]  # type: ignore[misc]
    assert (left["on"], len(left["subjects"])) == ("unknown-health", 20)
    assert "which jobs run there and whether it is drained is unknown" in left["detail"]
    assert any("they were when they were last collected" in each for each in json.loads(said.out)["warnings"])
    for words in (("status", "--json"), ("nodes", "list", "--json"), ("plans", "list", "--json")):
        assert cluster.desk.here(*words).exit_code == 0, words


def store_nodes(cluster: Cluster) -> None:
    """What a collect keeps of the inventory, without a look at a node."""
    store = open_store(str(cluster.desk.store))
    listed = [
        Node(name, name, None, None, {"slurm.partition": "dev" if at < 4 else "train", "rack": f"r{at // 4}"}, "slurm")
        for at, name in enumerate(NODES)
    ]
    inline(store.save_nodes(listed))
    inline(store.close())


def test_a_plan_says_in_a_minute_what_breaks_what_is_detected_what_it_costs_and_who_is_left_out(
    cluster: Cluster,
) -> None:
    cluster.slurm(drained={"gpu20": "bad DIMM"})
    lines = cluster.planned().out.splitlines()
    text = "\n".join(lines)
    assert len(lines) < 40
    assert all(len(line) < 260 for line in lines)
    for pattern in (
        rf"plan-[0-9a-f]{{16}}: 19 nodes to {NEW} \(19 from {OLD}\)", r"breaks: 19 nodes reload the module; now 19 idle, 0 busy",
        r"cost, if all goes well: .* node-hours without new work, .* GPU-hours", r"stage canary: 2 nodes \(1\+1\), then soaks 2h",
        r"detects \(95 %\) a driver that fails at once on 78 % of nodes or more", r"stage control: 1 node held back for comparison",
        r"no stage detects: slower GPUs", r"rack r\[1-3\]: at most 2 of 4 nodes away at once",
        r"not planned: gpu20: is drained in Slurm by alice: bad DIMM \[left to people\]",
    ):  # fmt: skip
        assert re.search(pattern, text), pattern


def test_a_plan_in_a_file_comes_back_and_is_refused_once_it_was_changed(cluster: Cluster, tmp_path: Path) -> None:
    file = tmp_path / "change.json"
    plan_id = str(cluster.planned("--out", str(file), "--json").body["id"])
    assert cluster.desk.here("plans", "show", str(file), "--json").body["id"] == plan_id
    assert cluster.desk.here("plans", "diff", "last", str(file)).exit_code == 0
    text = file.read_text(encoding="utf-8")
    file.write_text(text.replace(NEW, "580.95.05"), encoding="utf-8")
    for words in (("plans", "show"), ("plans", "approve"), ("apply",)):
        said = cluster.desk.here(*words, str(file), "--json")
        assert said.exit_code == 3
        assert f"{file}: was changed after it was written: it calls itself {plan_id}" in str(said.body["message"])


@pytest.mark.parametrize(
    ("content", "says"),
    [
        ("{", "change.json:1: is no JSON"), ("[]", "is no plan of Muster"), ('{"schema": "muster.plan-file/1"}', "plan: must be an object"),
        ('{"schema": "muster.plan-file/1", "id": "x", "plan": {"schema": "muster.plan/9"}}', "plan.fleet: is missing"),
    ],
)  # fmt: skip
def test_a_file_that_holds_no_plan_is_refused_by_name_and_place(
    cluster: Cluster, tmp_path: Path, content: str, says: str
) -> None:
    (tmp_path / "change.json").write_text(content)
    said = cluster.desk.here("plans", "show", str(tmp_path / "change.json"), "--json")
    assert said.exit_code == 3
    assert says in str(said.body["message"])


def test_a_plan_for_another_fleet_is_refused(cluster: Cluster, tmp_path: Path) -> None:
    cluster.planned("--out", str(tmp_path / "change.json"))
    (tmp_path / "other.yaml").write_text(POLICY.replace("fleet: lab", "fleet: other"))
    said = cluster.desk.here(
        "plans", "approve", str(tmp_path / "change.json"), "--fleet", str(tmp_path / "other.yaml"), "--json"
    )
    assert (said.exit_code, "is a plan for fleet lab" in str(said.body["message"])) == (3, True)


def test_a_round_of_an_approved_plan_needs_no_new_approval_as_long_as_it_stays_within(cluster: Cluster) -> None:
    first = str(cluster.planned("--json").body["id"])
    assert cluster.desk.here("plans", "approve", first).exit_code == 0
    put(cluster.desk, [made_now(seen("gpu20", {"lease.held": True, "lease.holder": "bob"}))])
    second = cluster.planned("--after", first, "--json")
    assert plan_of(second)["parent"] == first
    assert [each["by"] for each in second.body["approved_by"]] != []  # type: ignore[attr-defined]
    assert second.body["outside_of_parent"] == []
    wider = cluster.planned("--after", first, "--driver", "580.95.05", "--json")
    assert wider.body["approved_by"] == []
    assert "its target is 580.95.05" in str(wider.body["outside_of_parent"])
    refused = cluster.desk.here("apply", str(wider.body["id"]), "--json")
    assert refused.exit_code == 4
    assert f"the approval of {first} does not cover it: its target is 580.95.05" in str(refused.body["message"])


def test_diff_names_what_is_done_otherwise(cluster: Cluster) -> None:
    first = str(cluster.planned("--json").body["id"])
    cluster.slurm(drained={"gpu05": "bad DIMM"})
    cluster.planned()
    said = cluster.desk.here("plans", "diff", first, "last")
    assert said.exit_code == 1
    assert "gpu05 left out now: is drained in Slurm by alice: bad DIMM" in said.out
    changes = cluster.desk.here("plans", "diff", first, "last", "--json").body["changes"]
    assert isinstance(changes, list)
    assert {
        "what": "node",
        "says": "left out now: is drained in Slurm by alice: bad DIMM",
        "nodes": ["gpu05"],
    } in changes
