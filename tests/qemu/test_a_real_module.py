"""A module that is really loaded, held, unloaded and refused: what a container cannot show."""

from collections.abc import Callable

import pytest

from lab.guest_base import PROGRAMS
from tests.qemu.conftest import NEW, OLD, Bench

pytestmark = [pytest.mark.slow, pytest.mark.lab(*PROGRAMS), pytest.mark.xdist_group("qemu")]


def test_a_driver_is_built_by_dkms_and_exchanged_without_a_restart(make_bench: Callable[..., Bench]) -> None:
    bench = make_bench()
    before = bench.guest.truth()
    assert before["loaded"] == before["disk"] == OLD
    said = bench.change(NEW)
    assert said.exit_code == 0, said.out + said.err
    after = bench.guest.truth()
    assert after["loaded"] == after["disk"] == after["library"] == NEW, after
    assert after["boot"] == before["boot"]
    assert "Open" in after["banner"]
    assert after["audit"] == ""
    assert bench.guest.ok("systemctl is-active nvidia-persistenced").strip() == "active"
