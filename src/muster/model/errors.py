"""The errors that people and scripts meet, as one tree with stable codes.

Expected refusals of the world are values (`Refused`, `Unknown`), not exceptions; an exception of this tree ends a command. The CLI's exit
code and, later, the API's problem document come from the class attributes here and from nowhere else.

    MusterError                          70  our fault, when raised bare
    +-- BadInput                  MST-INPUT-001   3  a file or argument that cannot be read as what it should be
    |   +-- UnknownName           MST-INPUT-002   3  a node, pool, plan or version nobody knows; the nearest ones are named
    |   +-- DocumentFaults        MST-INPUT-003   3  every fault of one file, each with its line
    +-- Refused                   MST-POLICY-001  4  understood, and not allowed as things stand
    |   +-- NotApproved           MST-POLICY-002  4  the plan lacks approvals
    |   +-- LeaseHeld             MST-LEASE-001   4  another holder has the node
    |   +-- StoreTooNew           MST-STORE-001   4  the store was written by a newer release
    +-- Partial                   MST-NODE-001    5  some nodes are unknown or unreachable
    +-- Halted                    MST-ROLL-001    6  a rollout stopped itself or went back
    +-- NoRoom                    MST-INPUT-004   3  what a command prints cannot be written
    +-- MissingTool               MST-TOOL-001    3  this machine lacks something the command needs
    +-- ClaimLost                 MST-ENGINE-001  70 another process carries the run now; what it wrote stands
    +-- StoreBroken               MST-STORE-002   70 the store cannot be read or written
        +-- NoStore               MST-STORE-003   3  what was named is no store, nor a place for one
"""


class MusterError(Exception):
    """Base of the tree. `hint` says what to do next and may be None only where nothing can be done."""

    code = "MST-BUG-001"
    exit_code = 70
    summary = "a fault in Muster itself"

    def __init__(self, message: str, *, hint: str | None = None) -> None:
        super().__init__(message)
        self.message = message
        self.hint = hint


class BadInput(MusterError):
    """A file, argument or name from a person that cannot be used; names the file, line or node."""

    code = "MST-INPUT-001"
    exit_code = 3
    summary = "the input cannot be used"


class UnknownName(BadInput):
    """A name that nothing known bears; the hint names the nearest known ones."""

    code = "MST-INPUT-002"
    summary = "nothing of that name is known"


class DocumentFaults(BadInput):
    """All faults of one document. `faults` holds one line of text each, `file:line: what (hint)`, in line order."""

    code = "MST-INPUT-003"
    summary = "a document has faults"

    def __init__(self, message: str, *, faults: tuple[str, ...], hint: str | None = None) -> None:
        super().__init__(message, hint=hint)
        self.faults = faults


class Refused(MusterError):
    """Understood, and not allowed as things stand."""

    code = "MST-POLICY-001"
    exit_code = 4
    summary = "refused by policy"


class NotApproved(Refused):
    """The plan lacks approvals that its policy asks for."""

    code = "MST-POLICY-002"
    summary = "the plan is not approved"


class LeaseHeld(Refused):
    """Another holder has a claim on the node."""

    code = "MST-LEASE-001"
    summary = "another holder has the node"


class StoreTooNew(Refused):
    """The store's schema is newer than this release; nothing was read or written."""

    code = "MST-STORE-001"
    summary = "the store was written by a newer release"


class Partial(MusterError):
    """The command did what it could; the named nodes are unknown or unreachable."""

    code = "MST-NODE-001"
    exit_code = 5
    summary = "some nodes are unknown or unreachable"


class Halted(MusterError):
    """A rollout stopped itself, or went back."""

    code = "MST-ROLL-001"
    exit_code = 6
    summary = "the rollout halted"


class MissingTool(MusterError):
    """This machine lacks a program the command needs; the hint says how to get it."""

    code = "MST-TOOL-001"
    exit_code = 3
    summary = "a program is missing on this machine"


class ClaimLost(MusterError):
    """Another process carries this run now. Nothing of ours was written after it took over."""

    code = "MST-ENGINE-001"
    summary = "another process carries this run"


class StoreBroken(MusterError):
    """The store cannot be read or written (disk full, not a database, no permission)."""

    code = "MST-STORE-002"
    summary = "the store cannot be used"


class NoStore(StoreBroken):
    """What `--store` or $MUSTER_STORE names is no store of Muster's, nor a place where one can be made."""

    code = "MST-STORE-003"
    exit_code = 3
    summary = "this is no store"


class NoRoom(MusterError):
    """What a command prints cannot be written where it goes: a full disk behind standard output. What it did before stands."""

    code = "MST-INPUT-004"
    exit_code = 3
    summary = "the output cannot be written"
