"""Every finding there can be: its code, how bad it is, and what it means. Closed: what is not here cannot be found, chosen or alerted on.

The codes are for scripts and stay. Tests hold every judgement in the source, and the page `docs/reference/findings.md`, to this list.
"""

from collections.abc import Mapping

from muster.model.finding import Severity
from muster.model.frozen import dataclass


@dataclass(frozen=True, slots=True)
class Code:
    """One kind of finding. `cause_asked`: the package manager's logs are asked who brought it about; where they do not say, that is said."""

    code: str
    severity: Severity
    meaning: str
    cause_asked: bool = False


_ALL = (
    Code(
        "automatic-upgrades-on",
        Severity.WARNING,
        "The node upgrades itself (unattended-upgrades, dnf-automatic) and the policy forbids it (`holds.automatic_upgrades`).",
    ),
    Code(
        "cdi-shadowed",
        Severity.WARNING,
        "Two CDI specs define the same devices and name different drivers, or are in one folder: which one counts depends on who reads them.",
    ),
    Code(
        "cdi-stale",
        Severity.ERROR,
        "A CDI spec names files of another driver than the library on disk: containers get no GPU.",
        cause_asked=True,
    ),
    Code(
        "clock-here-wrong",
        Severity.WARNING,
        "Most nodes tell another time than this machine, and the same one: it is this machine's clock that is off.",
    ),
    Code("clock-wrong", Severity.WARNING, "The node's clock is more than five minutes off."),
    Code(
        "developer-driver",
        Severity.WARNING,
        "The loaded driver is the one that came with a CUDA toolkit, and the policy forbids it (`holds.developer_driver`).",
        cause_asked=True,
    ),
    Code("empty-pool", Severity.WARNING, "No node matches a pool of the policy."),
    Code(
        "fabric-manager-differs",
        Severity.ERROR,
        "The fabric manager or IMEX is of another version than the loaded driver, and refuses to start.",
        cause_asked=True,
    ),
    Code("gpu-missing", Severity.ERROR, "Fewer GPUs answer than the node has had, or than are on its PCI bus."),
    Code("gpu-unknown", Severity.UNKNOWN, "nvidia-smi did not answer, or the GPUs could not be counted."),
    Code("half-installed", Severity.ERROR, "dpkg left a package of the driver half-way."),
    Code(
        "headers-missing",
        Severity.WARNING,
        "DKMS builds the module, and a bootable kernel has no headers: the next driver cannot be built for it.",
    ),
    Code(
        "hold-missing",
        Severity.WARNING,
        "A package of the driver is not held and the policy asks for it (`holds.driver`).",
    ),
    Code("hold-unknown", Severity.UNKNOWN, "Whether packages of the driver are held could not be read."),
    Code(
        "image-booted",
        Severity.WARNING,
        "The root file system is an image (overlay, tmpfs, NFS, ...): a changed driver would be gone after a restart.",
    ),
    Code("in-two-pools", Severity.ERROR, "The node matches two pools of the policy: nothing is planned on it."),
    Code(
        "initramfs-differs",
        Severity.ERROR,
        "The initramfs of a bootable kernel holds a driver of another version than the one on disk: the next boot loads that one.",
        cause_asked=True,
    ),
    Code(
        "kernel-not-held", Severity.WARNING, "A kernel package is not held and the policy asks for it (`holds.kernel`)."
    ),
    Code(
        "key-not-enrolled",
        Severity.ERROR,
        "Secure boot is on, and a kernel's module is signed by a key neither enrolled nor built in: it will not load.",
    ),
    Code(
        "library-is-not-loaded",
        Severity.ERROR,
        "The user-space library is of another version than the loaded module: CUDA does not start.",
        cause_asked=True,
    ),
    Code(
        "loaded-is-not-on-disk",
        Severity.ERROR,
        "The module on disk is of another version than the loaded one: the next reload or boot changes the driver.",
        cause_asked=True,
    ),
    Code(
        "machine-id-not-unique",
        Severity.WARNING,
        "Two names have one machine-id: one machine listed twice, or a cloned image.",
    ),
    Code(
        "mixed-drivers",
        Severity.WARNING,
        "A pool runs more than one driver; named are the nodes of the rarer ones.",
        cause_asked=True,
    ),
    Code(
        "module-missing",
        Severity.WARNING,
        "A bootable kernel, not the one that comes next, has no nvidia module on disk.",
        cause_asked=True,
    ),
    Code(
        "module-unsigned",
        Severity.WARNING,
        "Secure boot is on and the module of a bootable kernel carries no signature.",
    ),
    Code("never-seen", Severity.UNKNOWN, "The node was never looked at."),
    Code(
        "next-boot-differs",
        Severity.ERROR,
        "The kernel that boots next has no nvidia module, or one of another version than is loaded.",
        cause_asked=True,
    ),
    Code("no-driver-fits", Severity.WARNING, "What the pool wants cannot run on this node."),
    Code("no-gpu", Severity.ERROR, "nvidia-smi answers and sees no GPU."),
    Code("not-as-wanted", Severity.WARNING, "Another driver is loaded than the pool wants."),
    Code("not-judged", Severity.UNKNOWN, "Questions whose facts are missing, those with one reason in one finding."),
    Code(
        "nouveau-can-return",
        Severity.WARNING,
        "Nothing keeps nouveau from being loaded, or an initramfs that can be booted was made before what does.",
    ),
    Code("nouveau-loaded", Severity.ERROR, "nouveau is loaded and has the GPUs."),
    Code("one-machine-two-names", Severity.ERROR, "One set of GPUs answered under two names."),
    Code("packages-unknown", Severity.UNKNOWN, "The installed packages could not be read."),
    Code(
        "parameters-differ",
        Severity.WARNING,
        "The module was loaded with other parameters than the settings on disk give it: the next load changes them.",
    ),
    Code(
        "run-over-packages", Severity.ERROR, "NVIDIA's own `.run` installer has written over files that packages own."
    ),
    Code(
        "seen-in-the-future",
        Severity.UNKNOWN,
        "The last look is later than now: this machine's clock was set back, and the age of what is known cannot be told.",
    ),
    Code(
        "service-failed",
        Severity.WARNING,
        "A service beside the driver (fabric manager, nvlsm, IMEX, DCGM, persistence daemon) has failed.",
    ),
    Code(
        "settings-differ",
        Severity.WARNING,
        "Nodes of one pool with the same GPUs have other settings than most: MIG, ECC, persistence, compute mode, power limit, clocks.",
    ),
    Code(
        "signing-key-unknown",
        Severity.UNKNOWN,
        "Secure boot is on, and whether the key that signed a module is enrolled could not be read.",
    ),
    Code("stack-unknown", Severity.UNKNOWN, "The loaded module, the module on disk or the library could not be read."),
    Code("stale", Severity.UNKNOWN, "What is known of the node is older than a day."),
    Code("unreachable", Severity.UNKNOWN, "The node could not be looked at."),
)

CODES: Mapping[str, Code] = {each.code: each for each in _ALL}
"""By code, in the order of the alphabet."""

CAUSE_ASKED = frozenset(each.code for each in _ALL if each.cause_asked)
"""Findings for which the logs are asked; where they do not say, that is said."""
