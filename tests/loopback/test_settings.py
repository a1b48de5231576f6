"""Laws of what a node was set to: a restart takes it away, the texts give it back, and say what they could not give back."""

from pathlib import Path

from muster.loopback.fleet import LoopbackFleet
from muster.node.settings import DIFFERS, give_back, save

KEEP = "/var/lib/muster/node/restore/run-1"
QUERY = "nvidia-smi --query-gpu=power.limit,compute_mode --format=csv,noheader"
SET = "nvidia-smi -pl 450; nvidia-smi -c EXCLUSIVE_PROCESS; nvidia-smi mig -i 0 -cgi 19:0,19:4 -C"


def test_what_a_restart_takes_away_is_given_back(tmp_path: Path) -> None:
    fleet = LoopbackFleet.create(tmp_path / "fleet", nodes=1)
    assert fleet.run("gpu01", SET).exit_status == 0
    before = fleet.run("gpu01", QUERY).stdout
    assert "450.00 W, Exclusive_Process" in before
    layout = fleet.run("gpu01", "nvidia-smi mig -lgi").stdout
    assert fleet.run("gpu01", "sh -s", stdin=save(KEEP)).exit_status == 0
    fleet.boot("gpu01")
    assert fleet.run("gpu01", QUERY).stdout != before
    ran = fleet.run("gpu01", "sh -s", stdin=give_back(KEEP))
    assert ran.exit_status == 0, ran.stdout + ran.stderr
    assert fleet.run("gpu01", QUERY).stdout == before
    assert fleet.run("gpu01", "nvidia-smi mig -lgi").stdout == layout


def test_what_cannot_be_given_back_is_named(tmp_path: Path) -> None:
    fleet = LoopbackFleet.create(tmp_path / "fleet", nodes=1)
    edited = fleet.node_root("gpu01") / "etc/modprobe.d/site.conf"
    edited.write_text("options nvidia NVreg_EnableMSI=1\n", encoding="utf-8")
    assert fleet.run("gpu01", "sh -s", stdin=save(KEEP)).exit_status == 0
    edited.unlink()
    ran = fleet.run("gpu01", "sh -s", stdin=give_back(KEEP))
    assert ran.exit_status == DIFFERS
    assert "differs: edited: was /etc/modprobe.d/site.conf" in ran.stdout


def test_a_parameter_without_a_value_is_no_difference(tmp_path: Path) -> None:
    fleet = LoopbackFleet.create(tmp_path / "fleet", nodes=1)
    parameters = fleet.node_root("gpu01") / "sys/module/nvidia/parameters"
    parameters.mkdir(parents=True, exist_ok=True)
    (parameters / "NVreg_RegistryDwords").write_text("\n", encoding="ascii")
    assert fleet.run("gpu01", "sh -s", stdin=save(KEEP)).exit_status == 0
    ran = fleet.run("gpu01", "sh -s", stdin=give_back(KEEP))
    assert ran.exit_status == 0, ran.stdout + ran.stderr


def test_a_parameter_that_was_written_down_for_the_next_load_is_no_difference_and_any_other_is(tmp_path: Path) -> None:
    fleet = LoopbackFleet.create(tmp_path / "fleet", nodes=1)
    root = fleet.node_root("gpu01")
    place = root / "sys/module/nvidia/parameters/NVreg_EnableMSI"
    place.parent.mkdir(parents=True, exist_ok=True)
    (root / "etc/modprobe.d/site.conf").write_text(
        "options nvidia NVreg_Mobile=1 NVreg_EnableMSI=0\n", encoding="ascii"
    )
    place.write_text("1\n", encoding="ascii")
    assert fleet.run("gpu01", "sh -s", stdin=save(KEEP)).exit_status == 0
    place.write_text("0\n", encoding="ascii")
    ran = fleet.run("gpu01", "sh -s", stdin=give_back(KEEP))
    assert ran.exit_status == 0, ran.stdout + ran.stderr
    place.write_text("2\n", encoding="ascii")
    ran = fleet.run("gpu01", "sh -s", stdin=give_back(KEEP))
    assert ran.exit_status == DIFFERS
    assert "differs: parameters: was NVreg_EnableMSI 1, is NVreg_EnableMSI 2" in ran.stdout


def test_what_the_boot_loader_remembers_is_compared_unless_it_is_being_changed(tmp_path: Path) -> None:
    fleet = LoopbackFleet.create(tmp_path / "fleet", nodes=1)
    block = fleet.node_root("gpu01") / "boot/grub/grubenv"
    block.parent.mkdir(parents=True, exist_ok=True)
    block.write_text("# GRUB Environment Block\nsaved_entry=old\n", encoding="ascii")
    assert fleet.run("gpu01", "sh -s", stdin=save(KEEP)).exit_status == 0
    block.write_text("# GRUB Environment Block\nsaved_entry=new\n", encoding="ascii")
    assert fleet.run("gpu01", "sh -s", stdin=give_back(KEEP)).exit_status == DIFFERS
    assert fleet.run("gpu01", "sh -s", stdin=give_back(KEEP, loader=False)).exit_status == 0


def test_without_a_record_nothing_is_compared(tmp_path: Path) -> None:
    fleet = LoopbackFleet.create(tmp_path / "fleet", nodes=1)
    ran = fleet.run("gpu01", "sh -s", stdin=give_back(KEEP))
    assert ran.exit_status == 0
    assert "no record" in ran.stdout
