"""A reload gives services that hold the GPUs back as they were, says so when one does not run again, and names what it will not end."""

from pathlib import Path

from muster.loopback.fleet import LoopbackFleet
from muster.loopback.observe import observe
from muster.node.restart import DOWN, IN_USE, RELOAD, SERVICES

DRIVER = "580.126.20"


def test_services_that_held_the_gpus_run_again(tmp_path: Path) -> None:
    fleet = LoopbackFleet.create(tmp_path / "fleet", nodes=1, initial={"gpu01": DRIVER})
    units = fleet.node_root("gpu01") / "loopback/units"
    (units / "dcgm-exporter").write_text("active\n", encoding="ascii")
    ran = fleet.run("gpu01", "sh -s", stdin=RELOAD)
    assert ran.exit_status == 0, ran.stdout + ran.stderr
    assert (units / "dcgm-exporter").read_text(encoding="ascii") == "active\n"
    assert observe(fleet.node_root("gpu01")).loaded == DRIVER


def test_a_service_that_does_not_run_beside_the_new_module_is_named(tmp_path: Path) -> None:
    fleet = LoopbackFleet.create(tmp_path / "fleet", nodes=1, initial={"gpu01": DRIVER})
    units = fleet.node_root("gpu01") / "loopback/units"
    (units / "dcgm-exporter").write_text("active\n", encoding="ascii")
    (units / "dcgm-exporter.masked").touch()
    ran = fleet.run("gpu01", "sh -s", stdin=RELOAD)
    assert ran.exit_status == DOWN
    assert "does not run beside the new module: dcgm-exporter" in ran.stdout


def test_a_job_is_not_ended_and_the_module_stays(tmp_path: Path) -> None:
    fleet = LoopbackFleet.create(tmp_path / "fleet", nodes=1, initial={"gpu01": DRIVER})
    (record,) = fleet.start_job("train", ["gpu01"], 300)
    ran = fleet.run("gpu01", "sh -s", stdin=RELOAD)
    assert ran.exit_status == IN_USE, ran.stdout
    assert observe(fleet.node_root("gpu01")).loaded == DRIVER
    assert "train" in str(record)
    fleet.finish_job("train", ["gpu01"])


def test_who_reads_the_gpus_through_another_service_is_stopped_before_it() -> None:
    order = {name: at for at, name in enumerate(SERVICES)}
    assert order["dcgm-exporter"] < order["nvidia-dcgm"] < order["nvidia-fabricmanager"] < order["nvidia-persistenced"]
