"""The phase machine: which phase follows which, as one table of values. Pure; the docs' diagram is generated from it.

The runner looks at a node, says what the look came to (`Event`), and this table says what the node needs next. There is no other place where
a phase is chosen. A pair that is not in the table is a fault of ours: `step` raises KeyError.
"""

from collections.abc import Mapping
from types import MappingProxyType

from muster.model.phase import Event, Phase

_ROWS: Mapping[Phase, Mapping[Event, Phase]] = {
    Phase.PREFLIGHT_REQUIRED: {Event.PASSED: Phase.LEASE_REQUIRED, Event.REFUSED: Phase.LEFT_OUT, Event.FAILED: Phase.LEFT_OUT},
    # Refused or not, the node may hold our claim already: an answer can be lost on its way to us. Giving back one that is not ours is harmless.
    Phase.LEASE_REQUIRED: {
        Event.PASSED: Phase.FETCH_REQUIRED, Event.REFUSED: Phase.RELEASE_REQUIRED, Event.FAILED: Phase.RELEASE_REQUIRED,
    },
    Phase.FETCH_REQUIRED: {
        Event.PASSED: Phase.CORDON_REQUIRED, Event.REFUSED: Phase.RELEASE_REQUIRED, Event.FAILED: Phase.RELEASE_REQUIRED,
    },
    Phase.CORDON_REQUIRED: {
        Event.PASSED: Phase.DRAIN_REQUIRED, Event.REFUSED: Phase.RELEASE_REQUIRED, Event.FAILED: Phase.RELEASE_REQUIRED,
    },
    Phase.DRAIN_REQUIRED: {
        Event.PASSED: Phase.BASELINE_REQUIRED, Event.REFUSED: Phase.RELEASE_REQUIRED, Event.FAILED: Phase.RELEASE_REQUIRED,
    },
    Phase.BASELINE_REQUIRED: {
        Event.PASSED: Phase.RESTORE_POINT_REQUIRED, Event.REFUSED: Phase.RELEASE_REQUIRED, Event.FAILED: Phase.QUARANTINED,
    },
    Phase.RESTORE_POINT_REQUIRED: {
        Event.PASSED: Phase.APPLY_REQUIRED, Event.REFUSED: Phase.RELEASE_REQUIRED, Event.FAILED: Phase.RELEASE_REQUIRED,
    },
    Phase.APPLY_REQUIRED: {
        Event.PASSED: Phase.RELOAD_REQUIRED, Event.RESTART_BY_REBOOT: Phase.REBOOT_REQUIRED,
        Event.FAILED: Phase.ROLLBACK_REQUIRED,
    },
    Phase.RELOAD_REQUIRED: {
        Event.PASSED: Phase.VERIFY_REQUIRED, Event.RESTART_BY_REBOOT: Phase.REBOOT_REQUIRED, Event.FAILED: Phase.ROLLBACK_REQUIRED,
    },
    Phase.REBOOT_REQUIRED: {Event.PASSED: Phase.VERIFY_REQUIRED, Event.FAILED: Phase.ROLLBACK_REQUIRED},
    Phase.VERIFY_REQUIRED: {Event.PASSED: Phase.VALIDATE_REQUIRED, Event.FAILED: Phase.ROLLBACK_REQUIRED},
    Phase.VALIDATE_REQUIRED: {Event.PASSED: Phase.RETURN_REQUIRED, Event.FAILED: Phase.ROLLBACK_REQUIRED},
    Phase.RETURN_REQUIRED: {Event.PASSED: Phase.PROBATION, Event.FAILED: Phase.QUARANTINED},
    Phase.PROBATION: {Event.PASSED: Phase.DONE, Event.WENT_BACK: Phase.ROLLED_BACK, Event.FAILED: Phase.QUARANTINED},
    Phase.ROLLBACK_REQUIRED: {
        Event.PASSED: Phase.ROLLBACK_RELOAD_REQUIRED, Event.RESTART_BY_REBOOT: Phase.ROLLBACK_REBOOT_REQUIRED,
        Event.FAILED: Phase.QUARANTINED,
    },
    Phase.ROLLBACK_RELOAD_REQUIRED: {
        Event.PASSED: Phase.ROLLBACK_VERIFY_REQUIRED, Event.RESTART_BY_REBOOT: Phase.ROLLBACK_REBOOT_REQUIRED,
        Event.FAILED: Phase.ROLLBACK_REBOOT_REQUIRED,
    },
    Phase.ROLLBACK_REBOOT_REQUIRED: {Event.PASSED: Phase.ROLLBACK_VERIFY_REQUIRED, Event.FAILED: Phase.QUARANTINED},
    Phase.ROLLBACK_VERIFY_REQUIRED: {Event.PASSED: Phase.ROLLBACK_VALIDATE_REQUIRED, Event.FAILED: Phase.QUARANTINED},
    Phase.ROLLBACK_VALIDATE_REQUIRED: {Event.PASSED: Phase.RETURN_REQUIRED, Event.FAILED: Phase.QUARANTINED},
    Phase.RELEASE_REQUIRED: {Event.PASSED: Phase.LEFT_OUT, Event.FAILED: Phase.QUARANTINED},
    Phase.DONE: {},
    Phase.ROLLED_BACK: {},
    Phase.LEFT_OUT: {},
    Phase.QUARANTINED: {},
}  # fmt: skip

TRANSITIONS: Mapping[Phase, Mapping[Event, Phase]] = MappingProxyType(
    {phase: MappingProxyType(dict(row)) for phase, row in _ROWS.items()}
)
"""Every phase with what each event leads to. `Event.WAITING` is not listed: it always stays."""

OUT_OF_SERVICE = frozenset(set(Phase) - {
    Phase.PREFLIGHT_REQUIRED, Phase.LEASE_REQUIRED, Phase.FETCH_REQUIRED, Phase.DONE, Phase.ROLLED_BACK, Phase.LEFT_OUT,
    Phase.PROBATION,
})  # fmt: skip
"""Phases in which the node is missing from its pool and counts against the budget."""

MEANING: Mapping[Phase, str] = MappingProxyType(
    {
        Phase.PREFLIGHT_REQUIRED: "prove, read-only, that the change can be made and undone",
        Phase.LEASE_REQUIRED: "claim the node; the claim lives on the node",
        Phase.FETCH_REQUIRED: "download and verify the new packages and the way back",
        Phase.CORDON_REQUIRED: "let no new job start",
        Phase.DRAIN_REQUIRED: "wait for the jobs, as the pool's policy says",
        Phase.BASELINE_REQUIRED: "validate on the OLD driver: what fails now was broken before",
        Phase.RESTORE_POINT_REQUIRED: "write down what the way back needs, and check it",
        Phase.APPLY_REQUIRED: "change the packages, in one transaction",
        Phase.RELOAD_REQUIRED: "load the new kernel module",
        Phase.REBOOT_REQUIRED: "restart the node and wait for another boot id",
        Phase.VERIFY_REQUIRED: "see that every member of the stack agrees",
        Phase.VALIDATE_REQUIRED: "exercise the GPUs",
        Phase.RETURN_REQUIRED: "give the node back to its pool and release the lease",
        Phase.PROBATION: "look once more, in service",
        Phase.ROLLBACK_REQUIRED: "restore the packages of the restore point",
        Phase.ROLLBACK_RELOAD_REQUIRED: "load the old kernel module",
        Phase.ROLLBACK_REBOOT_REQUIRED: "restart the node into the old driver",
        Phase.ROLLBACK_VERIFY_REQUIRED: "see that the old stack is whole again",
        Phase.ROLLBACK_VALIDATE_REQUIRED: "exercise the GPUs on the old driver",
        Phase.RELEASE_REQUIRED: "nothing was changed: lift the cordon and release the lease",
        Phase.DONE: "end: runs the new driver, validated, in service",
        Phase.ROLLED_BACK: "end: runs the old driver again, validated, in service",
        Phase.LEFT_OUT: "end: nothing was changed, and why is recorded",
        Phase.QUARANTINED: "end: out of service with its evidence; a person decides",
    }
)
"""One sentence for each phase, for people and the generated reference."""


def step(phase: Phase, event: Event) -> Phase:
    """The phase after `event` in `phase`. KeyError for a pair that is not in the table."""
    if event is Event.WAITING:
        return phase
    return TRANSITIONS[phase][event]


def diagram() -> str:
    """The table as a Mermaid state diagram, in table order."""
    lines = ["stateDiagram-v2", f"    [*] --> {_id(Phase.PREFLIGHT_REQUIRED)}"]
    for phase, row in TRANSITIONS.items():
        lines += [f"    {_id(phase)} --> {_id(after)}: {event.value}" for event, after in row.items()]
        if not row:
            lines.append(f"    {_id(phase)} --> [*]")
    return "\n".join(lines) + "\n"


def _id(phase: Phase) -> str:
    return phase.value.replace("-", "_")


def page() -> str:
    """The reference page of the phases, in Markdown; `scripts/docs` writes it."""
    rows = [
        f"| `{phase.value}` | {MEANING[phase]} | {_leads(phase)} | {'out' if phase in OUT_OF_SERVICE else 'in'} |"
        for phase in Phase
    ]
    return _PAGE.replace("@ROWS@", "\n".join(rows)).replace("@DIAGRAM@", diagram())


def _leads(phase: Phase) -> str:
    return "; ".join(f"{event.value}: `{after.value}`" for event, after in TRANSITIONS[phase].items()) or "-"


_PAGE = """\
# The phases of a node

<!-- Made by scripts/docs from src/muster/executor/machine.py. Change that, not this. -->

A phase says what a node needs *next*. `muster rollouts show` names it for every node. A wait stays in its phase.

| phase | what is done | leads to | in or out of service |
|---|---|---|---|
@ROWS@

Up to `restore-point-required` nothing of the node's stack is changed: when the rollout halts, these nodes are given back as they are. From
`apply-required` on every way ends in `done`, `rolled-back` or `quarantined`.

```mermaid
@DIAGRAM@```
"""
