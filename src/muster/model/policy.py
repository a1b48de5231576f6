"""What people want of a fleet: the value of `fleet.yaml`, schema 1.

Why it exists: solver, planner and executor must all see the same wish, complete and already checked; none of them
reads YAML. A missing section is its stated default here, so nobody else decides what silence means. It does not read
text (`planner.policy` does), does not know the clock (windows stay local times) and does not judge whether a wish can
be met (the solver does).
"""

from collections.abc import Mapping
from dataclasses import field
from decimal import Decimal
from enum import StrEnum
from types import MappingProxyType
from typing import Final, TypeAlias

from muster.model.frozen import dataclass
from muster.model.quantities import Amount, Window
from muster.model.ranges import Ranges
from muster.model.versions.cuda import CudaVersion
from muster.model.versions.driver import DriverVersion
from muster.model.versions.kernel import KernelVersion

SCHEMA: Final = 1


class Tier(StrEnum):
    """How much a pool's work matters; earlier tiers are changed first."""

    DEVELOPMENT = "development"
    STANDARD = "standard"
    CRITICAL = "critical"


class Flavour(StrEnum):
    """Which kernel modules: NVIDIA's open ones or the proprietary ones."""

    OPEN = "open"
    PROPRIETARY = "proprietary"


class ReleaseLine(StrEnum):
    """A kind of driver branch whose newest release can be asked for."""

    LONG_TERM_SUPPORT = "long-term-support"
    PRODUCTION = "production"


class DrainPolicy(StrEnum):
    """What happens to the jobs of a node that must be emptied.

    wait: they end by themselves; requeue: they are signalled, get time for a checkpoint, and are requeued; evict: they
    are signalled and then ended.
    """

    WAIT = "wait"
    REQUEUE = "requeue"
    EVICT = "evict"


class Permission(StrEnum):
    """Whether something may happen."""

    ALLOWED = "allowed"
    FORBIDDEN = "forbidden"


class Severity(StrEnum):
    """How bad a security bulletin is, as published by NVIDIA."""

    NONE = "none"
    LOW = "low"
    MEDIUM = "medium"
    HIGH = "high"
    CRITICAL = "critical"


@dataclass(frozen=True, slots=True)
class AnsibleSource:
    """Nodes from an Ansible inventory file; its groups become labels. The path is relative to the policy's folder."""

    path: str


@dataclass(frozen=True, slots=True)
class SlurmSource:
    """Nodes from Slurm; no partitions named means all of them."""

    partitions: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class HostsSource:
    """Nodes from a plain file: one name a line, `#` begins a comment."""

    path: str


@dataclass(frozen=True, slots=True)
class LocalSource:
    """The machine Muster itself runs on."""


@dataclass(frozen=True, slots=True)
class DirectorySource:
    """Nodes whose outputs were carried here as files: see `backends.inventory.directory`. The path is relative to the policy's folder."""

    path: str


InventorySource: TypeAlias = AnsibleSource | SlurmSource | HostsSource | LocalSource | DirectorySource


@dataclass(frozen=True, slots=True)
class SecretFrom:
    """Where a secret is, never the secret: a variable of the environment, the first line of a file, or a person (`prompt`; no name)."""

    kind: str
    name: str = ""


@dataclass(frozen=True, slots=True)
class Ssh:
    """How nodes are reached. None leaves the choice to the SSH configuration.

    `sudo_password` None: sudo is told not to ask. `script`: the program on the nodes by which `collect` looks, in place of one it sends.
    """

    user: str | None = None
    sudo: bool = False
    sudo_password: SecretFrom | None = None
    script: str | None = None
    config: str | None = None
    port: int | None = None
    # One control machine opens this many channels at once: sshd's own default lets 10 unauthenticated connections
    # wait, but per node; the bound here is the control machine's descriptors and CPU.
    concurrency: int = 100
    connect_timeout_s: int = 10


@dataclass(frozen=True, slots=True)
class Match:
    """One condition on a node: the value at `key` is one of `values`; the value `*` means any value at all."""

    key: str
    values: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class WantVersion:
    """Exactly this driver."""

    version: DriverVersion


@dataclass(frozen=True, slots=True)
class WantBranch:
    """The newest admissible driver of this branch, such as `R580`."""

    branch: str


@dataclass(frozen=True, slots=True)
class WantNewest:
    """The newest admissible driver of the newest branch of this kind."""

    line: ReleaseLine


DriverWish: TypeAlias = WantVersion | WantBranch | WantNewest


@dataclass(frozen=True, slots=True)
class DriverPolicy:
    """Which driver a pool shall carry; flavour None keeps the flavour a node has, as far as the driver allows."""

    wish: DriverWish
    flavour: Flavour | None = None


@dataclass(frozen=True, slots=True)
class KernelPolicy:
    """Which kernel a pool shall run: its release as `uname -r` prints it, and the version of the packages that carry it."""

    want: KernelVersion
    package: str


@dataclass(frozen=True, slots=True)
class Drain:
    """How a node is emptied; after `limit_s` it is given up for this round, never forced."""

    policy: DrainPolicy = DrainPolicy.WAIT
    signal: str | None = None
    checkpoint_wait_s: int = 0
    limit_s: int = 24 * 3600


@dataclass(frozen=True, slots=True)
class MaxUnavailable:
    """How many nodes may be away at the same time, for each grouping; None sets no bound of its own."""

    # One node: who states no bound has not thought about how much their work can spare.
    pool: Amount = field(default_factory=lambda: Amount(count=1))
    rack: Amount | None = None
    tenant: Amount | None = None


@dataclass(frozen=True, slots=True)
class Pool:
    """Nodes under one policy. Without a driver wish the pool is watched and never changed.

    `cuda` is what the users of the pool must be able to run; `reload` says whether modules may be exchanged without a
    reboot; `windows` empty means any time. Without a `kernel` each node keeps the one it runs.
    """

    name: str
    match: tuple[Match, ...]
    tier: Tier = Tier.STANDARD
    driver: DriverPolicy | None = None
    cuda: Ranges[CudaVersion] | None = None
    drain: Drain = field(default_factory=Drain)
    max_unavailable: MaxUnavailable = field(default_factory=MaxUnavailable)
    windows: tuple[Window, ...] = ()
    reload: Permission = Permission.ALLOWED
    kernel: KernelPolicy | None = None


@dataclass(frozen=True, slots=True)
class Rollout:
    """The order of a rollout: canaries if `canary`, then growing shares of the fleet, the last being all of it.

    `control` is the share kept back for comparison until the last soak; None keeps none.
    """

    canary: bool = True
    shares: tuple[Amount, ...] = (Amount(basis_points=500), Amount(basis_points=2500), Amount(basis_points=10_000))
    canary_soak_s: int = 2 * 3600
    later_soak_s: int = 24 * 3600
    control: Amount | None = field(default_factory=lambda: Amount(basis_points=500))
    approvals: int = 1


@dataclass(frozen=True, slots=True)
class Holds:
    """What is pinned on nodes between rollouts, and what is reported as drift."""

    driver: bool = True
    kernel: bool = True
    automatic_upgrades: Permission = Permission.FORBIDDEN
    developer_driver: Permission = Permission.FORBIDDEN


class EditedFiles(StrEnum):
    """What becomes of a configuration file that was edited by hand where a new package brings another."""

    KEEP = "keep"
    REPLACE = "replace"


@dataclass(frozen=True, slots=True)
class Repository:
    """Where a bare node gets its driver from: one line of an apt source without options, and the file with its signing key (ASCII-armoured, as
    seen from the policy's folder; None: a key that the node trusts already)."""

    source: str
    key: str | None = None


@dataclass(frozen=True, slots=True)
class Packages:
    """How packages are treated in a change.

    `unsigned`: packages from a repository that nobody signed. `questions`: packages that ask something while they are installed; allowed ones
    are answered by their own defaults.
    """

    edited_files: EditedFiles = EditedFiles.KEEP
    unsigned: Permission = Permission.FORBIDDEN
    questions: Permission = Permission.ALLOWED
    repository: Repository | None = None


@dataclass(frozen=True, slots=True)
class Security:
    """The worst open bulletin a target driver may carry; None does not judge by bulletins."""

    max_open_severity: Severity | None = None


@dataclass(frozen=True, slots=True)
class Floor:
    """The least a validation must measure; `minimum` None is learnt: from the node's own baseline, and from the fleet."""

    metric: str
    minimum: Decimal | None


@dataclass(frozen=True, slots=True)
class Validation:
    """How a node proves itself: the built-in validator, DCGM's diagnostic at a level (1 to 4), a site's command (its argv), or several of them.

    `nccl` is the libnccl.so.2 on the nodes that the built-in one shall use; without it, the loader's own if there is one.
    """

    builtin: bool = True
    command: tuple[str, ...] | None = None
    floors: tuple[Floor, ...] = ()
    dcgm: int | None = None
    nccl: str | None = None


@dataclass(frozen=True, slots=True)
class Policy:
    """The whole of a `fleet.yaml`.

    `revision` is the SHA-256 over its canonical content (comments and layout do not change it); approvals cite it.
    `knowledge` is the folder of the site's own records of knowledge, as seen from the file; None for the one beside the store.
    `lines` maps a path such as `pools.train.driver` to its line, for messages found later; neither takes part in
    comparison.
    """

    fleet: str
    inventory: tuple[InventorySource, ...]
    pools: tuple[Pool, ...]
    ssh: Ssh = field(default_factory=Ssh)
    rollout: Rollout = field(default_factory=Rollout)
    holds: Holds = field(default_factory=Holds)
    packages: Packages = field(default_factory=Packages)
    security: Security = field(default_factory=Security)
    validate: Validation = field(default_factory=Validation)
    knowledge: str | None = None
    revision: str = field(default="", compare=False)
    lines: Mapping[str, int] = field(default_factory=lambda: MappingProxyType({}), compare=False, repr=False)

    def pool(self, name: str) -> Pool | None:
        """The pool of that name."""
        return next((pool for pool in self.pools if pool.name == name), None)
