"""Will the node still have its driver after the next boot? Pure; from facts alone.

A question that makes no difference is not asked: which of two kernels comes next is no matter where both carry the loaded driver.
"""

from collections.abc import Iterator, Mapping, Sequence

from muster.health import cause
from muster.health.judgement import Gap, Question, Seen, Subject, gap
from muster.model.fact import NodeFacts
from muster.model.finding import Severity
from muster.model.stack import IMAGE_KINDS

NEXT = "what the next boot loads"
_UNSIGNED = "none"


def next_boot(subject: Subject, facts: NodeFacts) -> Iterator[Seen | Gap]:
    """Each bootable kernel has a module, and the one that comes next has the loaded one."""
    loaded = facts.text("module.nvidia.loaded_version") or facts.text("module.nvidia.disk_version")
    kernels = facts.value("kernel.bootable")
    if loaded is None:
        return  # a node without a driver, or `stack-unknown` has said so
    if not isinstance(kernels, tuple):
        yield gap(NEXT, kernels)
        return
    on_disk = {kernel: facts.value(f"kernel[{kernel}].nvidia.on_disk") for kernel in kernels}
    unread = [value for value in on_disk.values() if not isinstance(value, bool)]
    if unread:
        yield gap(NEXT, unread[0])
    coming = facts.value("kernel.next_boot")
    missing = [kernel for kernel, there in on_disk.items() if there is False and kernel != coming]
    if missing:
        yield Seen(
            "module-missing", Severity.WARNING, "boot", f"no nvidia module on disk for {', '.join(missing)}: booted, it has no GPUs",
            "install its headers, then: dkms autoinstall -k KERNEL; or remove the kernel", cause.kernel(facts, missing[-1]),
        )  # fmt: skip
    if isinstance(coming, str) and coming in on_disk:
        yield from _coming(facts, coming, loaded)
    elif not unread and not _all_carry(facts, kernels, loaded):
        yield gap(NEXT, coming)


def _coming(facts: NodeFacts, kernel: str, loaded: str) -> Iterator[Seen]:
    version = facts.text(f"kernel[{kernel}].nvidia.version")
    running = facts.text("kernel.running")
    if facts.value(f"kernel[{kernel}].nvidia.on_disk") is False:
        words = f"{kernel} boots next and has no nvidia module: the GPUs will be gone"
    elif version is not None and version != loaded and kernel != running:
        words = f"{kernel} boots next with {version}; {loaded} is loaded"
    else:
        return  # of the running kernel `loaded-is-not-on-disk` speaks
    yield Seen(
        "next-boot-differs", Severity.ERROR, "boot", words, "install its headers, then: dkms autoinstall -k KERNEL; do not reboot before",
        cause.kernel(facts, kernel),
    )  # fmt: skip


def _all_carry(facts: NodeFacts, kernels: Sequence[str], version: str) -> bool:
    return bool(kernels) and all(facts.text(f"kernel[{kernel}].nvidia.version") == version for kernel in kernels)


def headers(subject: Subject, facts: NodeFacts) -> Iterator[Seen | Gap]:
    """Where DKMS builds the module, every bootable kernel has its headers."""
    present, kernels = facts.value("dkms.present"), facts.value("kernel.bootable")
    if not isinstance(present, bool):
        yield gap("whether DKMS builds the module", present)
    if present is not True or not isinstance(kernels, tuple) or not facts.members("dkms"):
        return
    there = {kernel: facts.value(f"kernel[{kernel}].headers") for kernel in kernels}
    lacking = [kernel for kernel, value in there.items() if value is False]
    if lacking:
        yield Seen(
            "headers-missing", Severity.WARNING, "boot", f"no headers for {', '.join(lacking)}: DKMS cannot build the next driver there",
            "install linux-headers-KERNEL, or remove the kernel",
        )  # fmt: skip
    unread = [value for value in there.values() if not isinstance(value, bool)]
    if unread:
        yield gap("whether headers are there", unread[0])


def signatures(subject: Subject, facts: NodeFacts) -> Iterator[Seen | Gap]:
    """Where the firmware checks signatures, the module of each bootable kernel carries one by a key that is known to be enrolled."""
    enabled = facts.value("secure_boot.enabled")
    if not isinstance(enabled, bool):
        yield gap("secure boot", enabled)
    kernels = facts.value("kernel.bootable")
    if enabled is not True or not isinstance(kernels, tuple):
        return
    signers = {
        kernel: facts.text(f"kernel[{kernel}].nvidia.signer") for kernel in kernels if not _proved(facts, kernel)
    }
    bare = [kernel for kernel, signer in signers.items() if signer == _UNSIGNED]
    if bare:
        yield Seen(
            "module-unsigned", Severity.WARNING, "boot", f"secure boot is on, and the module for {', '.join(bare)} carries no signature",
            "sign it with an enrolled key, or let DKMS sign (mok_signing_key)",
        )  # fmt: skip
    judged = {k: _accepted(facts, k, signer) for k, signer in signers.items() if signer and signer != _UNSIGNED}
    strange = {kernel: str(signers[kernel]) for kernel, accepted in judged.items() if accepted is False}
    if strange:
        words = f"secure boot is on; the module for {', '.join(strange)} is signed by {_listed(strange)}, which is not enrolled"
        todo = "mokutil --import KEY.der, restart, and confirm at the console; or sign with an enrolled key"
        yield Seen("key-not-enrolled", Severity.ERROR, "boot", words, todo)
    unclear = {kernel: str(signers[kernel]) for kernel, accepted in judged.items() if accepted is None}
    if unclear:
        words = f"secure boot is on; whether the key {_listed(unclear)} is accepted is unknown"
        yield Seen("signing-key-unknown", Severity.UNKNOWN, "boot", words, "on the node: mokutil --test-key KEY.der")


def _listed(signers: Mapping[str, str]) -> str:
    return ", ".join(sorted(set(signers.values())))


def _accepted(facts: NodeFacts, kernel: str, signer: str) -> bool | None:
    """Whether the key that signed a kernel's module is one the kernel takes; None where that cannot be told.

    By its serial number where that is known: keys that are made anew, as DKMS does, have the name of the one before.
    """
    enrolled, built_in = facts.value("secure_boot.enrolled"), facts.value("secure_boot.kernel_keys")
    serials, own = facts.value("secure_boot.enrolled_serials"), facts.text(f"kernel[{kernel}].nvidia.sig_key")
    is_named = isinstance(enrolled, tuple) and signer in enrolled
    if own is not None and isinstance(serials, tuple) and serials and (own in serials or is_named):
        return own in serials
    if is_named or (isinstance(built_in, tuple) and signer in built_in):
        return True
    return False if isinstance(enrolled, tuple) and isinstance(built_in, tuple) and built_in else None


def _proved(facts: NodeFacts, kernel: str) -> bool:
    """Whether this kernel has loaded this very module already: better evidence than any list of keys."""
    loaded = facts.text("module.nvidia.loaded_version")
    return (
        kernel == facts.text("kernel.running")
        and loaded is not None
        and loaded == facts.text(f"kernel[{kernel}].nvidia.version")
    )


def nouveau(subject: Subject, facts: NodeFacts) -> Iterator[Seen | Gap]:
    """The free driver does not hold the GPUs and cannot take them at the next boot."""
    loaded, blacklisted = facts.value("nouveau.loaded"), facts.value("nouveau.blacklisted")
    on_disk, older = facts.value("nouveau.on_disk"), facts.value("nouveau.initramfs_older")
    todo = "keep it out in /etc/modprobe.d (blacklist nouveau), then make the initramfs anew"
    if loaded is True:
        yield Seen(
            "nouveau-loaded", Severity.ERROR, "nouveau", "nouveau is loaded: the driver cannot take the GPUs", todo
        )
    elif loaded is not False:
        yield gap("nouveau", loaded)
    elif blacklisted is False and on_disk is True:
        yield Seen("nouveau-can-return", Severity.WARNING, "nouveau", "nothing keeps nouveau from being loaded", todo)
    elif blacklisted is True and older is True and on_disk is True:
        # What is known of its content counts more than its age.
        inside = facts.value(f"kernel[{facts.text('kernel.running')}].initramfs.modules")
        if not isinstance(inside, tuple) or "nouveau" in inside:
            holds = " and holds it" if isinstance(inside, tuple) else ""
            words = f"the initramfs is older than the settings that keep nouveau out{holds}"
            yield Seen("nouveau-can-return", Severity.WARNING, "nouveau", words, todo)
    elif blacklisted is not True and on_disk is not False:
        yield gap("nouveau", on_disk if blacklisted is False else blacklisted)


def initramfs(subject: Subject, facts: NodeFacts) -> Iterator[Seen | Gap]:
    """The initramfs of each bootable kernel holds the driver that is on disk for it, or none: it is what the kernel loads first."""
    images = facts.value("initramfs.images")
    if not isinstance(images, tuple):
        yield gap("what the initramfs holds", images)
        return
    for kernel in images:
        modules = facts.value(f"kernel[{kernel}].initramfs.modules")
        if not isinstance(modules, tuple):
            yield gap("what the initramfs holds", modules)
            continue
        if "nvidia" not in modules:
            continue
        inside, disk = facts.value(f"kernel[{kernel}].initramfs.nvidia"), facts.text(f"kernel[{kernel}].nvidia.version")
        if not isinstance(inside, str):
            yield gap(f"which driver the initramfs of {kernel} holds", inside)
        elif disk is not None and inside != disk:
            words = f"the initramfs of {kernel} holds {inside}, {disk} is on disk: the next boot loads {inside}"
            todo = f"on the node: update-initramfs -u -k {kernel}, or: dracut --force --kver {kernel}"
            yield Seen(
                "initramfs-differs", Severity.ERROR, "boot", words, todo, cause.brought(facts, disk, cause.MODULE)
            )


def parameters(subject: Subject, facts: NodeFacts) -> Iterator[Seen | Gap]:
    """The loaded module has the parameters that the settings on disk give it."""
    loaded, differ = facts.value("module.nvidia.loaded"), facts.value("module.nvidia.options_differ")
    if loaded is not True:
        return
    if not isinstance(differ, tuple):
        yield gap("the module's parameters", differ)
    elif differ:
        words = f"the next load changes {'; '.join(differ)}"
        todo = "reload the module or restart the node in a rollout, or mend /etc/modprobe.d"
        yield Seen("parameters-differ", Severity.WARNING, "driver", words, todo)


def image(subject: Subject, facts: NodeFacts) -> Iterator[Seen | Gap]:
    """The root file system outlives a restart."""
    kind = facts.value("root_fs.kind")
    if not isinstance(kind, str):
        yield gap("what kind the root file system is", kind)
    elif kind in IMAGE_KINDS:
        words = (
            f"the root file system is {kind}: a change of the driver would be gone after a restart, and none is planned"
        )
        yield Seen("image-booted", Severity.WARNING, "boot", words, "put the driver into the image that the node boots")


QUESTIONS: tuple[Question, ...] = (next_boot, headers, signatures, nouveau, initramfs, parameters, image)
