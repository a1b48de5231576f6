"""A command for a node, and what came of it.

Real transports read only argv, stdin and the deadline. The intent says in our own words what the command is for: the audit log shows it,
and a simulated transport applies it to its world instead of running the text.
"""

from collections.abc import Mapping
from dataclasses import fields
from typing import TypeAlias, assert_never

from muster.model.frozen import dataclass
from muster.model.lease import Fence
from muster.model.stack import PackagePin


@dataclass(frozen=True, slots=True)
class Collect:
    """Look at everything; change nothing."""

    facts: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class ListJobs:
    """Read which processes hold a GPU; change nothing."""


@dataclass(frozen=True, slots=True)
class AskScheduler:
    """Ask the scheduler for its nodes, jobs or settings by its command `question`; change nothing."""

    question: str


@dataclass(frozen=True, slots=True)
class CordonNodes:
    """Have the scheduler begin no new job on `nodes` (its names for them), for this `reason`."""

    nodes: tuple[str, ...]
    reason: str


@dataclass(frozen=True, slots=True)
class UncordonNodes:
    """Have the scheduler take `nodes` (its names for them) for new jobs again."""

    nodes: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class SignalJob:
    """Have the scheduler send a job a signal (`USR1`): it is to write a checkpoint."""

    job_id: str
    signal: str


@dataclass(frozen=True, slots=True)
class RequeueJob:
    """Have the scheduler end a job and put it back into its queue."""

    job_id: str


@dataclass(frozen=True, slots=True)
class EndJob:
    """Have the scheduler end a job for good."""

    job_id: str


@dataclass(frozen=True, slots=True)
class Preflight:
    """Ask whether `pins` could be installed and `back` could be restored; change nothing."""

    pins: tuple[PackagePin, ...]
    back: tuple[PackagePin, ...]


@dataclass(frozen=True, slots=True)
class FetchPackages:
    """Download and verify `pins` and the way `back`; install nothing."""

    pins: tuple[PackagePin, ...]
    back: tuple[PackagePin, ...]


@dataclass(frozen=True, slots=True)
class InstallPackages:
    """Bring exactly these versions onto the node, up or down, as one transaction; packages named `gone` leave it."""

    pins: tuple[PackagePin, ...]
    gone: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Hold:
    """Keep others from changing these packages, and what the policy holds besides."""

    pins: tuple[PackagePin, ...]


@dataclass(frozen=True, slots=True)
class SaveRestorePoint:
    """Write down what a way back needs."""

    run_id: str


@dataclass(frozen=True, slots=True)
class GiveBackSettings:
    """Set again what the node was set to before its change, and compare."""

    run_id: str


@dataclass(frozen=True, slots=True)
class SettleKernel:
    """Make `kernel`, which runs, what the node boots for good; the packages `gone`, of another kernel, leave the node."""

    kernel: str
    gone: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Reload:
    """Unload the kernel module and load the one on disk."""


@dataclass(frozen=True, slots=True)
class Reboot:
    """Restart the node."""


@dataclass(frozen=True, slots=True)
class Validate:
    """Exercise the GPUs and report."""


@dataclass(frozen=True, slots=True)
class TakeLease:
    """Claim the node for a rollout."""

    holder: str
    rollout_id: str


@dataclass(frozen=True, slots=True)
class ReleaseLease:
    """Give the node back."""

    rollout_id: str


@dataclass(frozen=True, slots=True)
class ShowLease:
    """Read who holds the node."""


Work: TypeAlias = (
    FetchPackages | InstallPackages | Hold | SaveRestorePoint | GiveBackSettings | SettleKernel | Reload | Reboot | Validate
)  # fmt: skip
"""What a detached task may be for."""


@dataclass(frozen=True, slots=True)
class StartTask:
    """Start `work` detached under `task_id`, or learn what became of it."""

    task_id: str
    fence: Fence
    work: Work


@dataclass(frozen=True, slots=True)
class PollTask:
    """Learn what became of `task_id`; start nothing."""

    task_id: str


@dataclass(frozen=True, slots=True)
class Alert:
    """Tell people, on this machine, by a program of the operator's."""


JobWork: TypeAlias = SignalJob | RequeueJob | EndJob
"""What a scheduler may be told to do with a job."""

Intent: TypeAlias = (
    Alert | Collect | ListJobs | AskScheduler | CordonNodes | UncordonNodes | JobWork | Preflight | TakeLease | ReleaseLease
    | ShowLease | StartTask | PollTask
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class Command:
    """One exchange with a node: argv is run there with `stdin`, and must answer within `deadline_s` seconds."""

    argv: tuple[str, ...]
    stdin: bytes
    deadline_s: float
    intent: Intent


@dataclass(frozen=True, slots=True)
class Answered:
    """The command ended by itself."""

    exit_status: int
    stdout: bytes
    stderr: bytes


@dataclass(frozen=True, slots=True)
class Unreachable:
    """No answer: `kind` is one of timeout, refused, host-key, auth, lost, name. The node may or may not have begun the command."""

    kind: str
    why: str
    hint: str


Outcome: TypeAlias = Answered | Unreachable


def describe(intent: Intent | Work) -> Mapping[str, object]:
    """The intent as plain values for the audit log: its kind, and what it names."""
    body: dict[str, object] = {"kind": _kind(intent)}
    match intent:
        case StartTask(task_id=task_id, fence=fence, work=work):
            body |= {"task_id": task_id, "fence": str(fence), "work": describe(work)}
        case InstallPackages(pins=pins) | Hold(pins=pins):
            gone = intent.gone if isinstance(intent, InstallPackages) else ()
            body |= {"packages": [str(pin) for pin in pins]} | ({"gone": list(gone)} if gone else {})
        case FetchPackages(pins=pins, back=back) | Preflight(pins=pins, back=back):
            body |= {"packages": [str(pin) for pin in pins], "way_back": [str(pin) for pin in back]}
        case (
            TakeLease() | ReleaseLease() | SaveRestorePoint() | GiveBackSettings() | PollTask() | AskScheduler()
            | SignalJob() | RequeueJob() | EndJob() | SettleKernel()
        ):  # fmt: skip  # texts alone, under their own names
            body |= {each.name: getattr(intent, each.name) for each in fields(intent)}
        case CordonNodes(nodes=nodes, reason=reason):
            body |= {"nodes": list(nodes), "reason": reason}
        case UncordonNodes(nodes=nodes):
            body |= {"nodes": list(nodes)}
        case Collect(facts=facts):
            body |= {"facts": list(facts)}
        case Alert() | ListJobs() | ShowLease() | Reload() | Reboot() | Validate():
            pass
        case _:
            assert_never(intent)
    return body


def _kind(intent: object) -> str:
    name = type(intent).__name__
    return "".join("-" + c.lower() if c.isupper() else c for c in name).lstrip("-")
