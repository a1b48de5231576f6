"""What the demo counts, counted on logs of which the answer is known."""

from muster.loopback.demo import unvalidated
from muster.loopback.observe import Truth
from muster.model.audit import GENESIS, Entry, Record, append

GOOD_WAY = ("apply-required", "reload-required", "verify-required", "validate-required", "return-required")


def log(*phases: tuple[str, str]) -> tuple[Entry, ...]:
    return tuple(
        append(
            "r", seq, Record("2026-11-30T12:00:00.000Z", "a", "gpu01", "phase", {"from": left, "event": event}), GENESIS
        )
        for seq, (left, event) in enumerate(phases, 1)
    )


def node(*, lease: bool = False) -> Truth:
    return Truth("gpu01", "580.126.20", "580.126.20", "b", lease, (), (), ())


def test_a_node_that_was_validated_before_its_return_is_no_fault() -> None:
    assert unvalidated(log(*((phase, "passed") for phase in GOOD_WAY)), (node(),)) == 0


def test_a_node_that_returned_unvalidated_is_counted() -> None:
    entries = log(*((phase, "passed") for phase in GOOD_WAY if phase != "validate-required"))
    assert unvalidated(entries, (node(),)) == 1


def test_a_validation_of_the_driver_before_does_not_count_for_the_one_after() -> None:
    entries = log(
        *((phase, "passed") for phase in GOOD_WAY), ("apply-required", "passed"), ("return-required", "passed")
    )
    assert unvalidated(entries, (node(),)) == 1


def test_a_node_out_of_service_need_not_be_validated() -> None:
    assert unvalidated(log(("apply-required", "failed")), (node(lease=True),)) == 0
    assert unvalidated(log(("apply-required", "failed")), (node(),)) == 1
