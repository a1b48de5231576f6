"""A real Slurm answers what its readers read: the same nodes and jobs by JSON and by text, whatever the hour of the machine that asks."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine, Iterator
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, TypeVar

import pytest

from muster.backends import _slurm_ask, _slurm_text
from muster.backends.inventory import slurm as inventory
from muster.backends.schedulers.slurm import SlurmReader, SlurmScheduler
from muster.backends.transport.local import LocalTransport
from muster.model.command import Answered, Command, Outcome
from muster.model.errors import MissingTool, Partial
from muster.model.job import JobState, NodeState
from muster.model.node import Node
from muster.model.policy import SlurmSource
from tests.support.slurm import NODES, PROGRAMS, Cluster, cluster

T = TypeVar("T")
pytestmark = [pytest.mark.lab(*PROGRAMS)]


@pytest.fixture(scope="module")
def lab(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    with cluster(tmp_path_factory.mktemp("slurm")) as made:
        yield made


def transport(lab: Cluster) -> LocalTransport:
    return LocalTransport(environment=lab.environment)


def done(work: Coroutine[Any, Any, T]) -> T:
    return asyncio.run(work)


class WithoutJson:
    """The same cluster as a build without JSON answers."""

    def __init__(self, inner: LocalTransport) -> None:
        self._inner = inner

    async def run(self, node: Node, command: Command) -> Outcome:
        if "--json" in command.argv:
            return Answered(1, b"", b"unrecognized option '--json'\n")
        return await self._inner.run(node, command)

    async def close(self) -> None:
        return None


def test_the_inventory_lists_slurms_nodes_with_partitions_and_features_as_labels(lab: Cluster) -> None:
    found = done(inventory.read(transport(lab), SlurmSource()))
    assert [node.name for node in found.nodes] == list(NODES)
    third = found.nodes[2]
    assert dict(third.labels) == {"slurm.partition": "train,batch", "slurm.feature": "h100,rack2", "slurm.gpu": "h100"}
    assert (third.address, third.source) == ("127.0.0.13", "slurm")
    some = done(inventory.read(transport(lab), SlurmSource(("batch", "trian"))))
    assert [node.name for node in some.nodes] == ["gpu03", "gpu04"]
    assert some.warnings == ("slurm: no node is in a partition trian; did you mean train?",)


def test_a_drained_node_is_told_alike_by_json_and_by_text_and_in_utc(lab: Cluster) -> None:
    before = datetime.now(UTC) - timedelta(seconds=2)
    lab.run("scontrol", "update", "nodename=gpu02", "state=drain", "reason=muster: ECC State=DOWN")
    by_json = {node.name: node for node in done(SlurmReader(transport(lab)).nodes()).nodes}
    by_text = {node.name: node for node in done(SlurmReader(WithoutJson(transport(lab))).nodes()).nodes}
    node = by_json["gpu02"]
    assert (node.state, node.flags, node.reason, node.reason_by) == (
        NodeState.IDLE,
        ("DRAIN",),
        "muster: ECC State=DOWN",
        "root",
    )
    assert node.reason_at is not None
    assert before <= node.reason_at <= datetime.now(UTC) + timedelta(seconds=2)
    assert not node.takes_jobs
    assert by_json["gpu01"].takes_jobs
    assert set(by_json) == set(by_text) == set(NODES)
    for name, one in by_json.items():
        # Text alone says no detail of what is used, and JSON of this release writes a GPU's sockets in another way.
        aligned = {key: getattr(one, key) for key in ("gres_used", "gres_used_text", "gres", "gres_text", "tres")}
        assert replace(by_text[name], **aligned) == one
        assert by_text[name].gpus == one.gpus == 8
    lab.run("scontrol", "update", "nodename=gpu02", "state=resume")


def test_a_gang_job_is_told_alike_by_json_by_scontrol_and_by_squeue(lab: Cluster) -> None:
    name = "x NodeList=gpu[01-99] |UserId=root(0)"
    wanted = ("-N2", "-w", "gpu01,gpu03", "--gres=gpu:h100:3", "-t", "30", "-J", name)
    job_id = lab.run("sbatch", "--parsable", *wanted, "-o", "/dev/null", "--wrap", "sleep 600").strip()
    lab.until(f'[ "$(squeue -h -j {job_id} -o %T)" = RUNNING ]')
    reader, text_reader = SlurmReader(transport(lab)), SlurmReader(WithoutJson(transport(lab)))
    (by_json,) = done(reader.all_jobs())
    (by_text,) = done(text_reader.all_jobs())
    (by_squeue,) = done(_slurm_ask.listed_jobs(transport(lab)))
    for job in (by_json, by_text, by_squeue):
        assert (job.job_id, job.name, job.state, job.nodes) == (job_id, name, JobState.RUNNING, ("gpu01", "gpu03"))
        assert (job.size, job.gang, job.gpus, job.limit_s, job.unlimited) == (2, True, 6, 1800, False)
        assert job.user == "root"
        assert job.starts_at is not None
        assert job.ends_at == job.starts_at + timedelta(minutes=30)
        assert abs(job.starts_at - datetime.now(UTC)) < timedelta(minutes=5)
    assert {by_json.starts_at, by_text.starts_at, by_squeue.starts_at} == {by_json.starts_at}
    acting = SlurmScheduler(transport(lab))
    on = [done(acting.jobs(Node(name, name, None, None, {}, "test"))) for name in ("gpu01.site.example", "gpu02")]
    assert [[job.job_id for job in jobs] if isinstance(jobs, tuple) else jobs for jobs in on] == [[job_id], []]
    lab.run("scancel", job_id)
    lab.until(f'[ -z "$(squeue -h -j {job_id})" ]')


def test_an_endless_job_has_no_end_in_any_form(lab: Cluster) -> None:
    job_id = lab.run("sbatch", "--parsable", "-p", "train", "-o", "/dev/null", "--wrap", "sleep 600").strip()
    lab.until(f'[ "$(squeue -h -j {job_id} -o %T)" = RUNNING ]')
    readers = (SlurmReader(transport(lab)), SlurmReader(WithoutJson(transport(lab))))
    jobs = [
        *(job for reader in readers for job in done(reader.all_jobs())),
        *done(_slurm_ask.listed_jobs(transport(lab))),
    ]
    assert [(job.ends_at, job.unlimited, job.gang) for job in jobs] == [(None, True, False)] * 3
    lab.run("scancel", job_id)
    lab.until(f'[ -z "$(squeue -h -j {job_id})" ]')


def test_settings_partitions_and_reservations_are_read(lab: Cluster) -> None:
    reader = SlurmReader(transport(lab))
    config = done(reader.config())
    assert lab.run("sinfo", "--version").split()[1] == config.version
    assert (config.cluster, config.settings["GresTypes"]) == ("lab", "gpu")
    partitions = {each.name: each for each in done(reader.partitions())}
    assert partitions["train"].nodes == NODES[:3]
    assert (partitions["batch"].max_time_s, partitions["train"].max_time_s, partitions["train"].default) == (
        86400,
        None,
        True,
    )
    assert done(reader.reservations()) == ()
    lab.run(
        "scontrol",
        "create",
        "reservation=upgrade",
        "starttime=now+60minutes",
        "duration=60",
        "user=root",
        "nodes=gpu[01-02]",
        "flags=maint,ignore_jobs",
    )
    (reservation,) = done(reader.reservations())
    assert (reservation.name, reservation.nodes, reservation.users) == ("upgrade", NODES[:2], ("root",))
    assert reservation.starts_at is not None
    assert timedelta(minutes=50) < reservation.starts_at - datetime.now(UTC) < timedelta(minutes=70)
    lab.run("scontrol", "delete", "reservationname=upgrade")


def test_a_slurm_that_does_not_answer_is_unknown_and_a_machine_without_it_says_so(lab: Cluster, tmp_path: Path) -> None:
    (tmp_path / "slurm.conf").write_text(
        (lab.root / "slurm.conf").read_text().replace("SlurmctldPort=", "SlurmctldPort=1 #")
    )
    away = LocalTransport(environment={**lab.environment, "SLURM_CONF": str(tmp_path / "slurm.conf")})
    with pytest.raises(Partial, match="Slurm's nodes are unknown"):
        done(SlurmReader(away).nodes())
    (tmp_path / "bin").mkdir()
    (tmp_path / "bin" / "env").symlink_to("/usr/bin/env")
    with pytest.raises(MissingTool, match="sinfo is not on this machine's PATH"):
        done(SlurmReader(LocalTransport(environment={"PATH": str(tmp_path / "bin")})).nodes())


def test_what_slurm_prints_is_read_whole_at_ten_thousand_nodes() -> None:
    about = "Arch=x86_64 CoresPerSocket=8 Gres=gpu:h100:8(S:0-1) NodeAddr=10.0.0.1 State=IDLE Partitions=gpu"
    line = f"NodeName=n{{0:05}} {about} NodeHostName=n{{0:05}}\n"
    content = "".join(line.format(number) for number in range(10_000)).encode()
    assert len(_slurm_text.nodes(content, "scontrol")) == 10_000
