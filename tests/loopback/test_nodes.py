"""Laws of a loopback node: the real apt and dpkg change it, and its tools say what the real ones would."""

import xml.etree.ElementTree as ElementTree
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from muster.loopback.fleet import LoopbackFleet
from muster.loopback.jobs import LEASE, jobs_of
from muster.loopback.nodes import Ran
from muster.loopback.observe import Transition, broken, observe, run_twice, transitions
from muster.loopback.packages import MEMBERS
from muster.model.errors import LeaseHeld, MusterError, UnknownName

Until = Callable[[Callable[[], bool]], None]
OLD, BAD, NEW = "570.195.03", "580.119.02", "580.126.20"
NODE, OTHER = "gpu01", "gpu02"
CONF = "etc/modprobe.d/nvidia.conf"


def install(fleet: LoopbackFleet, node: str, version: str, *options: str) -> Ran:
    pins = " ".join(f"{member}={version}-1" for member in MEMBERS)
    settings = " ".join(("-o DPkg::Options::=--force-confold", *options))
    return fleet.run(node, f"DEBIAN_FRONTEND=noninteractive apt-get install -q -y {pins} {settings}")


def states(fleet: LoopbackFleet, node: str) -> dict[str, str]:
    ran = fleet.run(node, r"dpkg-query -W -f '${Package} ${db:Status-Abbrev}${Version}\n'")
    return dict(line.split(" ", 1) for line in ran.stdout.splitlines())


def test_a_new_node_has_its_first_driver_from_apt_and_loaded(fleet: LoopbackFleet) -> None:
    assert states(fleet, NODE) == dict.fromkeys(MEMBERS, f"ii {OLD}-1")
    assert {change.action for change in transitions(fleet.node_root(NODE))} == {"install"}
    assert observe(fleet.node_root(NODE)).loaded == OLD


def test_apt_moves_all_members_from_one_version_to_another(fleet: LoopbackFleet, node: str) -> None:
    ran = install(fleet, node, NEW)
    assert ran.exit_status == 0, ran.stderr
    assert states(fleet, node) == dict.fromkeys(MEMBERS, f"ii {NEW}-1")
    assert fleet.run(node, "modinfo -F version nvidia").stdout.strip() == NEW
    assert fleet.run(node, "dkms status").stdout.startswith(f"nvidia/{NEW}, 6.1.0-57-amd64, ")


def test_two_nodes_do_not_see_each_others_packages(fleet: LoopbackFleet, node: str) -> None:
    install(fleet, node, NEW)
    assert states(fleet, OTHER) == dict.fromkeys(MEMBERS, f"ii {OLD}-1")
    assert fleet.run(OTHER, "apt-cache policy libcuda1").stdout.splitlines()[1].strip() == f"Installed: {OLD}-1"


def test_one_member_alone_cannot_be_moved_by_dpkg(fleet: LoopbackFleet, node: str) -> None:
    ran = fleet.run(node, f"dpkg -i {fleet.layout.repository}/libcuda1_{NEW}-1_*.deb")
    assert ran.exit_status != 0
    assert "dependency problems" in ran.stderr


def test_a_module_that_does_not_build_leaves_half_configured_packages_and_status_100(
    fleet: LoopbackFleet, node: str
) -> None:
    ran = install(fleet, node, BAD)
    assert ran.exit_status == 100
    assert "Error! Bad return status for module build on kernel: 6.1.0-57-amd64" in ran.stdout + ran.stderr
    found = states(fleet, node)
    assert found["nvidia-kernel-open-dkms"] == f"iF {BAD}-1"
    assert found["nvidia-driver-cuda"] == f"iU {BAD}-1"
    assert "nvidia-kernel-open-dkms" in broken(fleet.node_root(node))
    assert (fleet.node_root(node) / f"var/lib/dkms/nvidia/{BAD}/build/make.log").exists()
    assert observe(fleet.node_root(node)).loaded == OLD


def test_an_explicit_downgrade_mends_half_configured_packages(fleet: LoopbackFleet, node: str) -> None:
    install(fleet, node, BAD)
    assert install(fleet, node, OLD).exit_status == 100
    ran = install(fleet, node, OLD, "--allow-downgrades")
    assert ran.exit_status == 0, ran.stderr
    assert states(fleet, node) == dict.fromkeys(MEMBERS, f"ii {OLD}-1")
    assert fleet.run(node, "dpkg --audit").stdout == ""
    assert fleet.run(node, "nvidia-smi -L").exit_status == 0
    assert observe(fleet.node_root(node)).run_twice == 0


def test_a_changed_conffile_is_kept_where_that_is_asked_for(fleet: LoopbackFleet, node: str) -> None:
    conf = fleet.node_root(node) / CONF
    conf.write_text("options nvidia NVreg_OpenRmEnableUnsupportedGpus=1\n", encoding="utf-8")
    install(fleet, node, NEW)
    assert "OpenRm" in conf.read_text(encoding="utf-8")
    assert f"{NEW}" in conf.with_name("nvidia.conf.dpkg-dist").read_text(encoding="utf-8")


def test_a_held_package_stays_where_it_is(fleet: LoopbackFleet, node: str) -> None:
    fleet.run(node, f"apt-mark hold {' '.join(MEMBERS)}")
    assert fleet.run(node, "apt-mark showhold").stdout.split() == sorted(MEMBERS)
    assert install(fleet, node, NEW).exit_status == 100
    assert fleet.run(OTHER, "apt-mark showhold").stdout == ""


def test_a_policy_that_forbids_daemons_is_honoured(fleet: LoopbackFleet, node: str) -> None:
    policy = fleet.node_root(node) / "usr/sbin/policy-rc.d"
    policy.write_text("#!/bin/sh\nexit 101\n", encoding="ascii")
    policy.chmod(0o755)
    ran = install(fleet, node, NEW)
    assert "policy-rc.d denied execution" in ran.stdout + ran.stderr
    assert fleet.run(node, "systemctl is-active nvidia-persistenced").stdout == "active\n"


def test_nvidia_smi_refuses_while_library_and_module_differ(fleet: LoopbackFleet, node: str) -> None:
    install(fleet, node, NEW)
    ran = fleet.run(node, "nvidia-smi")
    assert ran.exit_status == 18
    assert ran.stdout == "Failed to initialize NVML: Driver/library version mismatch\nNVML library version: 580.126\n"


def test_nvidia_smi_cannot_reach_a_driver_that_is_not_loaded(fleet: LoopbackFleet, node: str) -> None:
    install(fleet, node, BAD)
    fleet.boot(node)
    ran = fleet.run(node, "nvidia-smi")
    assert ran.exit_status == 9
    assert "couldn't communicate with the NVIDIA driver" in ran.stdout
    assert fleet.run(node, "modinfo -F version nvidia").exit_status == 1


def test_a_boot_gives_a_new_boot_id_and_loads_the_module_on_disk(fleet: LoopbackFleet, node: str) -> None:
    before = observe(fleet.node_root(node))
    install(fleet, node, NEW)
    (fleet.node_root(node) / "run/left").touch()
    fleet.boot(node)
    after = observe(fleet.node_root(node))
    assert after.boot_id != before.boot_id
    assert (before.loaded, after.loaded) == (OLD, NEW)
    assert not (fleet.node_root(node) / "run/left").exists()
    assert fleet.run(node, "nvidia-smi --query-gpu=driver_version --format=csv,noheader").stdout.split() == [NEW] * 4


def test_a_reload_brings_the_module_on_disk_once_nobody_holds_the_old_one(fleet: LoopbackFleet, node: str) -> None:
    install(fleet, node, NEW)
    unload = "modprobe -r nvidia_drm nvidia_modeset nvidia_uvm nvidia"
    # The persistence daemon that could not restart beside the old module holds nothing.
    fleet.run(node, "systemctl stop nvidia-persistenced")
    ran = fleet.run(node, f"{unload} && modprobe nvidia && systemctl start nvidia-persistenced && nvidia-smi -L")
    assert ran.exit_status == 0, ran.stderr
    assert observe(fleet.node_root(node)).loaded == NEW


def test_the_persistence_daemon_holds_the_module(fleet: LoopbackFleet) -> None:
    ran = fleet.run(NODE, "modprobe -r nvidia")
    assert (ran.exit_status, ran.stderr) == (1, "modprobe: FATAL: Module nvidia is in use.\n")


def test_the_xml_is_the_real_capture_with_the_nodes_own_serials(fleet: LoopbackFleet) -> None:
    trees = [ElementTree.fromstring(fleet.run(node, "nvidia-smi -q -x").stdout) for node in (NODE, OTHER)]
    for tree in trees:
        assert tree.findtext("driver_version") == OLD
        assert tree.findtext("cuda_version") == "12.8"
        assert [gpu.findtext("product_name") for gpu in tree.iter("gpu")] == ["NVIDIA H100 80GB HBM3"] * 4
    for tag in ("serial", "uuid"):
        seen = [gpu.findtext(tag) for tree in trees for gpu in tree.iter("gpu")]
        assert len(set(seen)) == 8


def test_every_field_of_the_query_capture_can_be_asked_for(fleet: LoopbackFleet) -> None:
    heading = (fleet.node_root(NODE) / "loopback/smi/query-gpu").read_text(encoding="utf-8").splitlines()[0]
    fields = ",".join(name.split(" [")[0] for name in heading.split(", "))
    ran = fleet.run(NODE, f"nvidia-smi --query-gpu={fields} --format=csv")
    assert ran.stdout.splitlines()[0] == heading
    assert [len(line.split(", ")) for line in ran.stdout.splitlines()] == [212] * 5


def test_a_field_that_does_not_exist_is_refused(fleet: LoopbackFleet) -> None:
    ran = fleet.run(NODE, "nvidia-smi --query-gpu=index,speed --format=csv")
    assert (ran.exit_status, ran.stdout) == (2, 'Field "speed" is not a valid field to query.\n\n')


def test_unknown_units_are_refused_in_systemds_words(fleet: LoopbackFleet) -> None:
    ran = fleet.run(NODE, "systemctl start nvidia-fabricmanager")
    assert ran.exit_status == 5
    assert ran.stderr == "Failed to start nvidia-fabricmanager.service: Unit nvidia-fabricmanager.service not found.\n"


def test_the_machines_own_service_manager_cannot_be_reached_from_a_node(fleet: LoopbackFleet) -> None:
    assert fleet.run(NODE, "systemd-run --unit=x true").exit_status == 1
    assert fleet.run(NODE, "systemctl is-system-running").stdout == "offline\n"


def test_the_callers_environment_does_not_reach_a_node(fleet: LoopbackFleet, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MUSTER_STORE", "here")
    monkeypatch.setenv("TZ", "UTC")
    seen = fleet.run(NODE, "env").stdout
    assert "MUSTER_STORE" not in seen
    assert "TZ=UTC" in seen


def test_a_full_disk_stops_apt_and_says_so(fleet: LoopbackFleet, node: str) -> None:
    fleet.set_knob(node, "disk-full", "1")
    ran = install(fleet, node, NEW)
    assert ran.exit_status == 100
    assert "File too large" in ran.stderr
    assert states(fleet, node) == dict.fromkeys(MEMBERS, f"ii {OLD}-1")


def test_a_held_dpkg_lock_is_waited_for_or_refused(fleet: LoopbackFleet, node: str, until: Until) -> None:
    fleet.hold_dpkg_lock(node, 3600)
    refused = install(fleet, node, NEW)
    assert refused.exit_status == 100
    assert "Could not get lock" in refused.stderr
    said = fleet.node_root(node) / "tmp/said"
    said.touch()
    with ThreadPoolExecutor(1) as beside:
        waits = beside.submit(install, fleet, node, NEW, f"-o DPkg::Lock::Timeout=600 >{said} 2>&1")
        until(lambda: "Could not get lock" in said.read_text(encoding="utf-8"))
        fleet.release_dpkg_lock(node)
        assert waits.result().exit_status == 0


def test_a_job_holds_the_gpus_until_it_ends_by_itself(fleet: LoopbackFleet, node: str, until: Until) -> None:
    (job,) = fleet.start_job("j1", [node], 3600)
    listed = fleet.run(node, "nvidia-smi --query-compute-apps=pid --format=csv,noheader")
    assert listed.stdout.split() == [str(job.pid)] * 4
    xml = ElementTree.fromstring(fleet.run(node, "nvidia-smi -q -x").stdout)
    assert [found.text for found in xml.iter("pid")] == [str(job.pid)] * 4
    fleet.finish_job("j1", [node])
    assert jobs_of(fleet.node_root(node))[0].state == "finished"
    assert fleet.run(node, "nvidia-smi --query-compute-apps=pid --format=csv,noheader").stdout == ""
    fleet.start_job("j2", [node], 0.1)
    until(lambda: jobs_of(fleet.node_root(node))[1].state == "finished")


def test_a_job_that_is_killed_says_by_what(fleet: LoopbackFleet, node: str, until: Until) -> None:
    (job,) = fleet.start_job("j1", [node], 3600)
    fleet.run(node, f"kill -TERM {job.pid}")
    until(lambda: jobs_of(fleet.node_root(node))[0].state == "killed by SIGTERM")
    assert observe(fleet.node_root(node)).jobs_killed == 1


def test_no_job_starts_on_a_leased_node(fleet: LoopbackFleet, node: str) -> None:
    lease = fleet.node_root(node) / LEASE
    lease.parent.mkdir(parents=True)
    lease.touch()
    with pytest.raises(LeaseHeld):
        fleet.start_job("j1", [NODE, node], 60)
    assert jobs_of(fleet.node_root(NODE)) == ()


def test_going_back_and_then_elsewhere_is_not_running_twice() -> None:
    assert run_twice([_change("A", "B"), _change("B", "A"), _change("A", "C")]) == 0


def test_the_same_change_again_or_onto_itself_is_running_twice() -> None:
    assert run_twice([_change("A", "B"), _change("B", "A"), _change("A", "B")]) == 1
    assert run_twice([_change("A", "B"), _change("B", "B")]) == 1


def test_dpkg_logs_a_second_installation_so_that_it_is_counted(fleet: LoopbackFleet, node: str) -> None:
    fleet.run(node, f"dpkg -i {fleet.layout.repository}/nvidia-modprobe_{OLD}-1_*.deb")
    assert observe(fleet.node_root(node)).run_twice == 1


def test_a_fleet_is_not_made_over_something_else(tmp_path: Path) -> None:
    (tmp_path / "mine").touch()
    with pytest.raises(MusterError) as refused:
        LoopbackFleet.create(tmp_path)
    assert "not empty" in refused.value.message


def test_an_unknown_node_knob_or_release_is_named_with_the_known_ones(fleet: LoopbackFleet, tmp_path: Path) -> None:
    with pytest.raises(UnknownName):
        fleet.node_root("gpu99")
    with pytest.raises(UnknownName):
        fleet.set_knob(NODE, "speed")
    with pytest.raises(UnknownName):
        LoopbackFleet.create(tmp_path / "fleet", initial={"gpu01": "1.2.3"})


def _change(old: str, new: str) -> Transition:
    return Transition("2026-01-01 00:00:00", "upgrade", "libcuda1:amd64", old, new)
