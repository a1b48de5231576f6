"""The phases of a node in its change. A phase is named by what the node needs next, so that resuming after a kill needs no other knowledge."""

from enum import StrEnum


class Phase(StrEnum):
    """What a node needs next. The order here is the order of a change that goes well, then the way back, then the ends."""

    PREFLIGHT_REQUIRED = "preflight-required"
    LEASE_REQUIRED = "lease-required"
    FETCH_REQUIRED = "fetch-required"
    CORDON_REQUIRED = "cordon-required"
    DRAIN_REQUIRED = "drain-required"
    BASELINE_REQUIRED = "baseline-required"
    RESTORE_POINT_REQUIRED = "restore-point-required"
    APPLY_REQUIRED = "apply-required"
    RELOAD_REQUIRED = "reload-required"
    REBOOT_REQUIRED = "reboot-required"
    VERIFY_REQUIRED = "verify-required"
    VALIDATE_REQUIRED = "validate-required"
    RETURN_REQUIRED = "return-required"
    PROBATION = "probation"

    ROLLBACK_REQUIRED = "rollback-required"
    ROLLBACK_RELOAD_REQUIRED = "rollback-reload-required"
    ROLLBACK_REBOOT_REQUIRED = "rollback-reboot-required"
    ROLLBACK_VERIFY_REQUIRED = "rollback-verify-required"
    ROLLBACK_VALIDATE_REQUIRED = "rollback-validate-required"

    RELEASE_REQUIRED = "release-required"

    DONE = "done"
    ROLLED_BACK = "rolled-back"
    LEFT_OUT = "left-out"
    QUARANTINED = "quarantined"


class Event(StrEnum):
    """What a look at a node in its phase came to."""

    PASSED = "passed"
    WAITING = "waiting"
    REFUSED = "refused"
    FAILED = "failed"
    RESTART_BY_REBOOT = "restart-by-reboot"
    WENT_BACK = "went-back"


BEFORE_CHANGE = frozenset(
    {
        Phase.PREFLIGHT_REQUIRED, Phase.LEASE_REQUIRED, Phase.FETCH_REQUIRED, Phase.CORDON_REQUIRED, Phase.DRAIN_REQUIRED,
        Phase.BASELINE_REQUIRED, Phase.RESTORE_POINT_REQUIRED,
    }
)  # fmt: skip
"""Phases in which nothing of the node's stack was changed yet: a halted rollout gives these nodes back as they are, a paused one
lets them stand."""
