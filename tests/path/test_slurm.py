"""A rollout on a fleet that a real Slurm schedules: what it does to jobs and to nodes, it does through Slurm, and within what people said."""

import json
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

import pytest

from muster.loopback.fleet import LoopbackFleet
from tests.support.desk import LIMIT_S, Desk, Said, change_policy, make_fleet, until
from tests.support.slurm import NODES, PROGRAMS, Cluster, cluster

pytestmark = [pytest.mark.lab(*PROGRAMS)]

OLD, NEW = "580.95.05", "580.126.20"
TAKEN, GANG = "gpu03", ("gpu01", "gpu02")

_JOB = """\
#!/bin/sh
trap 'echo checkpoint ${SLURM_RESTART_COUNT:-0} >>@LOG@' USR1
echo start ${SLURM_RESTART_COUNT:-0} >>@LOG@
while :; do sleep 0.5; done
"""


@dataclass(frozen=True)
class Story:
    """What was there at the end of the night."""

    fleet: LoopbackFleet
    planned: Said
    applied: Said
    job: str
    slurm: Mapping[str, tuple[str, str]]
    """State and reason of each node."""
    log: tuple[str, ...]
    """What the job wrote: each of its starts and of its checkpoints."""
    commands: tuple[Mapping[str, object], ...]
    """What was asked of Slurm, by the audit log."""


@pytest.fixture(scope="module")
def story(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Story]:
    place = tmp_path_factory.mktemp("night")
    fleet = make_fleet(place / "fleet", dict.fromkeys(NODES, OLD))
    try:
        _scheduled(fleet)
        with cluster(place / "slurm") as slurm:
            yield _told(place, fleet, slurm)
    finally:
        fleet.stop()


def _scheduled(fleet: LoopbackFleet) -> None:
    """One pool of all nodes, which Slurm lists too, and whose jobs may be requeued."""
    wait = "drain: {policy: wait, limit: 5m}  # never cut a running job short"
    words = {
        "  - ansible: inventory.ini ": "  - ansible: inventory.ini\n  - slurm: {} ",
        "match: {label.role: train}": "match: {label.role: [train, inference]}",
        wait: "drain: {policy: requeue, signal: 'B:USR1', checkpoint_wait: 10s, limit: 30m}",
    }
    change_policy(fleet, words)
    text = fleet.layout.policy.read_text(encoding="utf-8")
    text = re.sub(r"(?s)\n  inference:.*?\n\n", "\n\n", text)
    fleet.layout.policy.write_text(text, encoding="utf-8")


def _told(place: Path, fleet: LoopbackFleet, slurm: Cluster) -> Story:
    desk = Desk(fleet.layout.folder, place / "muster.db")
    desk.environment |= {"SLURM_CONF": slurm.environment["SLURM_CONF"], "TZ": "Asia/Tokyo"}
    desk.ok("collect")
    log = place / "job.log"
    (place / "job.sh").write_text(_JOB.replace("@LOG@", str(log)))
    wanted = ("-N2", "-w", ",".join(GANG), "-p", "train", "-J", "llm", "-t", "60", "--requeue", "-o", "/dev/null")
    job = slurm.run("sbatch", "--parsable", *wanted, str(place / "job.sh")).strip()
    until(lambda: log.exists() and "start" in log.read_text())
    planned = desk.ok("plan", "--json")
    plan = str(planned.body["id"])
    desk.ok("plans", "approve", plan)
    fleet.set_knob(TAKEN, "slow-package", "600")
    applying = desk.start("apply", plan, "--json")
    until(lambda: desk.phases().get(TAKEN) == "apply-required")
    slurm.run("scontrol", "update", f"nodename={TAKEN}", "state=drain", "reason=fan 3 is loud")
    fleet.set_knob(TAKEN, "slow-package", None)
    out, err = applying.communicate(timeout=LIMIT_S)
    rollout = str(json.loads(out.splitlines()[-1])["data"]["rollout_id"])
    entries = [json.loads(line) for line in desk.ok("audit", "show", rollout, "--json").out.splitlines()]
    asked = tuple(entry["body"] for entry in entries if entry["kind"] == "command")
    rows = [line.split("|") for line in slurm.run("sinfo", "-h", "-N", "-o", "%N|%T|%E").splitlines()]
    states = {name: (state, reason) for name, state, reason in rows}
    return Story(
        fleet, planned, Said(applying.returncode, out, err), job, states, tuple(log.read_text().splitlines()), asked
    )


def test_the_rollout_ends_well_and_all_nodes_run_the_new_driver(story: Story) -> None:
    assert story.applied.exit_code == 0, story.applied.err
    assert {truth.name: truth.loaded for truth in story.fleet.truth()} == dict.fromkeys(NODES, NEW)


def test_a_gang_was_sent_its_signal_and_requeued_once(story: Story) -> None:
    assert story.log[:2] == ("start 0", "checkpoint 0")
    assert story.log.count("checkpoint 0") == 1
    asked = [(body["kind"], body["job_id"]) for body in story.commands if "job_id" in body]
    assert asked == [("signal-job", story.job), ("requeue-job", story.job)]


def test_its_nodes_are_in_service_again(story: Story) -> None:
    assert {story.slurm[name][1] for name in GANG} == {"none"}
    assert {story.slurm[name][0].rstrip("*") for name in GANG} <= {"idle", "mixed", "allocated"}


def test_the_node_that_a_person_took_over_in_its_change_is_finished_and_stays_theirs(story: Story) -> None:
    assert story.slurm[TAKEN] == ("drained", "fan 3 is loud")


def test_every_drain_is_written_down_before_it_is_made(story: Story) -> None:
    drained = [node for body in story.commands if body["kind"] == "cordon-nodes" for node in body["nodes"]]  # type: ignore[attr-defined]
    assert set(drained) == set(NODES)
