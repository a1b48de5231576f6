"""A real node crosses the rename of NVIDIA's Ubuntu packages (R590) and comes back: real apt and dpkg, systemd, restarts."""

from collections.abc import Callable

import pytest

from lab.packages import OPEN, PROPRIETARY, RELEASES, names
from lab.tools import PROGRAMS
from tests.nspawn.conftest import OLD, Bench

NEW, BAD = "595.71.05", "595.58.03"
CONF = "/etc/modprobe.d/nvidia-graphics-drivers.conf"
EDITED = "# by hand\noptions nvidia NVreg_EnableMSI=1\n"
SOURCES = {release.version: release for release in RELEASES}

pytestmark = [pytest.mark.slow, pytest.mark.lab(*PROGRAMS), pytest.mark.xdist_group("nspawn")]


def is_whole_on(bench: Bench, driver: str, flavour: str) -> None:
    """Loaded, library, disk and packages say `driver`; nothing is half done, everything is held, nobody has the node."""
    truth = bench.node.truth()
    wanted = names(SOURCES[driver], flavour).all
    assert {truth["loaded"], truth["library"], truth["disk"]} == {driver}
    assert truth["packages"].split() == [f"{name}={SOURCES[driver].package_version}" for name in wanted]
    assert truth["audit"] == ""
    assert truth["lease"] == ""
    assert set(wanted) <= set(truth["holds"].split())
    assert ("Open" in truth["banner"]) == (flavour == OPEN)


@pytest.mark.parametrize("flavour", [OPEN, PROPRIETARY])
def test_a_stack_crosses_the_rename_and_comes_back_with_holds_and_edited_settings(
    make_bench: Callable[..., Bench], flavour: str
) -> None:
    bench = make_bench(OLD, flavour)
    bench.node.ok("apt-mark hold kmod")
    (bench.node.root / CONF.lstrip("/")).write_text(EDITED, encoding="utf-8")
    for driver in (NEW, OLD):
        said = bench.change(driver, flavour)
        assert said.exit_code == 0, said.out + said.err
        is_whole_on(bench, driver, flavour)
        assert bench.node.ok(f"cat {CONF}") == EDITED
        assert "kmod" in bench.node.truth()["holds"].split()
        assert bench.node.ok("systemctl is-enabled nvidia-persistenced").strip() == "enabled"
    assert bench.node.ok("journalctl --no-pager -o cat | grep -c '^Started muster-run-.*-apply-0'").strip() == "2"


def test_a_failing_postinst_beyond_the_rename_brings_back_the_old_names(make_bench: Callable[..., Bench]) -> None:
    bench = make_bench()
    (bench.node.root / CONF.lstrip("/")).write_text(EDITED, encoding="utf-8")
    said = bench.change(BAD)
    assert said.exit_code == 6, said.out + said.err
    assert bench.phase() == "rolled-back"
    is_whole_on(bench, OLD, OPEN)
    assert bench.node.ok(f"cat {CONF}") == EDITED
    # Of the new names nothing is left, not even settings ("rc").
    left = bench.node.ok("dpkg-query -W -f '${Package} ${db:Status-Status}\\n' '*nvidia*' | grep config-files || true")
    assert left == ""
