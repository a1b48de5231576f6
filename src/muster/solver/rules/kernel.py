"""A module for every kernel that the node can boot: it can be built, and the firmware will accept it.

Whether a build succeeds is not decided from a version number: distributions carry newer interfaces in older numbers, and what is known are
points, not ranges. Known failures refuse; for the rest the first canary is the proof.
"""

from muster.knowledge.query_kernels import builds_on
from muster.model.fact import Unknown
from muster.solver.doubt import cited
from muster.solver.explain import Because, Hint, Observed, RuleSays
from muster.solver.hints import LOOK_AGAIN
from muster.solver.problem import Judgement, Kernel, NodeClass, Question, Refusal, Rule

UNSIGNED = "none"


def builds(kind: NodeClass) -> bool:
    """Whether the node builds its kernel modules itself (DKMS)."""
    return any("dkms" in pin.name for pin in kind.packages)


def _built(kind: NodeClass) -> tuple[Observed, ...]:
    """By which package it is known that the node builds its modules."""
    return tuple(Observed(f"package[{pin.name}].state", "installed") for pin in kind.packages if "dkms" in pin.name)[:1]


def _headers(question: Question) -> Judgement:
    """Where modules are built on the node, every bootable kernel has its headers."""
    kind = question.kind
    if not builds(kind):
        return ()
    says = RuleSays("headers-for-every-kernel", "DKMS builds the module for each kernel from its headers", "")
    if isinstance(kind.kernels, Unknown):
        seen = Observed("kernel.bootable", kind.kernels.why)
        because = Because("which kernels it can boot is unknown", (seen, *_built(kind), says))
        return Refusal(because, (LOOK_AGAIN,), unknown=True)
    built = _built(kind)
    lacking = [each for each in kind.kernels if each.headers is not True]
    without = [each.name for each in lacking if each.headers is False]
    if without:
        causes = tuple(Observed(f"kernel[{name}].headers", "false") for name in without)
        because = Because(
            f"no headers for {', '.join(without)}: the module cannot be built there, and booted it has no GPUs",
            (*causes, *built, says),
        )
        return Refusal(because, (Hint(f"install linux-headers-{without[0]}, or remove that kernel"),))
    if lacking:
        causes = tuple(
            Observed(f"kernel[{each.name}].headers", each.headers.why)
            for each in lacking
            if isinstance(each.headers, Unknown)
        )
        because = Because(f"whether {lacking[0].name} has its headers is unknown", (*causes, *built, says))
        return Refusal(because, (LOOK_AGAIN,), unknown=True)
    return ()


def _ready_built(question: Question) -> Judgement:
    """The kernel modules are not brought ready built by packages that are bound to one kernel and do not move with the driver."""
    kind = question.kind
    if builds(kind) or not kind.prebuilt:
        return ()
    says = RuleSays(
        "modules-move-with-the-driver",
        f"{kind.prebuilt[0]} brings modules of one driver for one kernel, under a version of its own",
        "",
    )
    because = Because(
        "its kernel modules come ready built, and would stay behind",
        (Observed(f"package[{kind.prebuilt[0]}].state", "installed"), says),
    )
    return Refusal(because, (Hint("this release moves modules that DKMS builds: install the driver's dkms package"),))


def _signed(question: Question) -> Judgement:
    """Where the firmware checks signatures, the key that signs this node's modules is enrolled."""
    kind = question.kind
    says = RuleSays(
        "module-is-signed", "with secure boot a module is loaded only with a signature by an enrolled key", ""
    )
    if isinstance(kind.secure_boot, Unknown):
        seen = Observed("secure_boot.enabled", kind.secure_boot.why)
        return Refusal(
            Because("whether the firmware checks signatures is unknown", (seen, says)), (LOOK_AGAIN,), unknown=True
        )
    if not kind.secure_boot or not builds(kind) or isinstance(kind.kernels, Unknown):
        return ()
    for kernel in kind.kernels:
        refusal = _signature(kernel, kind, says)
        if refusal is not None:
            return refusal
    return (says,)


def _signature(kernel: Kernel, kind: NodeClass, says: RuleSays) -> Refusal | None:
    on = (Observed("secure_boot.enabled", "true"), *_built(kind))
    path = f"kernel[{kernel.name}].nvidia.signer"
    if isinstance(kernel.signer, Unknown):
        because = Because(
            f"secure boot is on, and who signs modules for {kernel.name} is unknown",
            (*on, Observed(path, kernel.signer.why), says),
        )
        return Refusal(because, (LOOK_AGAIN,), unknown=True)
    if kernel.signer == UNSIGNED:
        because = Because(
            f"secure boot is on, and modules built for {kernel.name} are not signed",
            (*on, Observed(path, UNSIGNED), says),
        )
        return Refusal(because, (Hint("let DKMS sign (mok_signing_key), and enrol its key: mokutil --import"),))
    if kernel.signer in kind.kernel_keys:
        return None
    if isinstance(kind.enrolled, Unknown):
        because = Because(
            f"secure boot is on, and whether the key {kernel.signer} is enrolled is unknown",
            (*on, Observed(path, kernel.signer), Observed("secure_boot.enrolled", kind.enrolled.why), says),
        )
        return Refusal(because, (Hint("on the node: mokutil --list-enrolled"),), unknown=True)
    if kernel.signer in kind.enrolled:
        return None
    because = Because(
        f"secure boot is on, and the key {kernel.signer} is not enrolled",
        (
            *on,
            Observed(path, kernel.signer),
            Observed("secure_boot.enrolled", ", ".join(kind.enrolled) or "none"),
            says,
        ),
    )
    return Refusal(because, (Hint("enrol it: mokutil --import KEY.der, then restart and confirm at the console"),))


def _compiles(question: Question) -> Judgement:
    """No kernel is one on which this driver's module is known not to build; where nobody knows, the first canary is asked."""
    kind, candidate = question.kind, question.candidate
    if not builds(kind) or isinstance(kind.kernels, Unknown):
        return ()
    said: list[RuleSays] = []
    for kernel in kind.kernels:
        answer = builds_on(question.known, kernel.name, candidate.driver, candidate.flavour)
        if answer.builds is False and answer.claim is not None:
            says = cited("kernel-builds", answer.claim)
            because = Because(
                f"{candidate.driver.plain.text} does not build on {kernel.name}",
                (
                    Observed("kernel.bootable", kernel.name),
                    Observed("module.nvidia.flavour", kind.flavour),
                    *_built(kind),
                    says,
                ),
            )
            return Refusal(because, (Hint(f"choose another driver, or remove the kernel {kernel.name}"),))
        if answer.builds and answer.claim is not None:
            said.append(cited("kernel-builds", answer.claim))
        else:
            words = f"whether {candidate.driver.plain.text} builds on {kernel.name} is not recorded"
            said.append(RuleSays("kernel-builds", words, "", ask="the first canary builds it"))
    return tuple(said)


RULES = (
    Rule("headers-for-every-kernel", _headers),
    Rule("modules-move-with-the-driver", _ready_built),
    Rule("module-is-signed", _signed),
    Rule("kernel-builds", _compiles),
)
