"""Does what stands beside the driver fit it, and can something move it unasked? Pure; from facts alone.

Not installed is an answer: a node without containers or switches has nothing to disagree.
"""

import re
from collections.abc import Iterator, Sequence

from muster.health import cause
from muster.health.judgement import Gap, Question, Seen, Subject, gap, upstream
from muster.model.fact import NodeFacts
from muster.model.finding import Severity

_META = re.compile(
    r"linux-image(-[a-z]\S*)?|linux-(generic|virtual|aws|azure|gcp|oracle|nvidia)\S*|kernel(-core|-default|-uek|-uek-core)?"
)
_LOCKSTEP = re.compile(r"nvidia-imex(-\d+)?|nvidia-fabricmanager(-\d+)?")
_WITH_DRIVER = re.compile(r"cuda(-(runtime|demo-suite))?(-\d{1,2}-\d{1,2})?")
"""NVIDIA's packages of a CUDA toolkit that depend on its driver packages; `cuda-toolkit-12-8` and the libraries do not."""
_DRIVER = re.compile(r"libcuda\d|nvidia-(driver|kernel|dkms|open)|libnvidia-(compute|ml)|kmod-nvidia")


def upgrades(subject: Subject, facts: NodeFacts) -> Iterator[Seen | Gap]:
    """Nothing upgrades the node by itself where the policy forbids it."""
    if not subject.upgrades_forbidden:
        return
    automatic = facts.value("upgrades.automatic")
    if automatic is True:
        setting = facts.text("upgrades.unattended_upgrade")
        words = (
            "dnf-automatic installs upgrades"
            if setting is None
            else f"unattended-upgrades is on (Unattended-Upgrade {setting!r})"
        )
        yield Seen(
            "automatic-upgrades-on", Severity.WARNING, "packages", f"{words}; the policy forbids automatic upgrades",
            'APT::Periodic::Unattended-Upgrade "0"; in /etc/apt/apt.conf.d, or allow it: holds.automatic_upgrades',
        )  # fmt: skip
    elif automatic is not False:
        yield gap("automatic upgrades", automatic)


def kernel_hold(subject: Subject, facts: NodeFacts) -> Iterator[Seen | Gap]:
    """No upgrade brings a kernel where the policy holds it."""
    if not subject.hold_kernel or facts.unread("package") is not None:
        return  # of unread packages `packages-unknown` speaks
    running = f"linux-image-{facts.text('kernel.running')}"
    names = [
        name
        for name in facts.members("package")
        if (_META.fullmatch(name) or name == running) and facts.text(f"package[{name}].state") == "installed"
    ]
    free = [name for name in names if facts.value(f"package[{name}].hold") is False]
    if free:
        yield Seen(
            "kernel-not-held", Severity.WARNING, "packages", f"{', '.join(free)} not held: an upgrade may bring a kernel without a driver",
            "on the node: apt-mark hold PACKAGE, or dnf versionlock add PACKAGE; or in the policy: holds: {kernel: false}",
        )  # fmt: skip
    unread = [value for name in names if not isinstance(value := facts.value(f"package[{name}].hold"), bool)]
    if unread:
        yield gap("whether the kernel is held", unread[0])


def run_install(subject: Subject, facts: NodeFacts) -> Iterator[Seen | Gap]:
    """NVIDIA's own installer has not written over files of packages."""
    there = facts.value("runfile.installed")
    if not isinstance(there, bool):
        yield gap(".run installs", there)
    elif there:
        owned = [name for name in facts.members("package") if _DRIVER.match(name)]
        packages = [name for name in owned if facts.text(f"package[{name}].state") == "installed"]
        version = facts.text("runfile.version") or "of an unknown version"
        if packages:
            yield Seen(
                "run-over-packages", Severity.ERROR, "packages", f"a .run install {version} lies over {packages[0]} and others",
                "nvidia-uninstall, then install the packages again: apt-get install --reinstall, or dnf reinstall",
            )  # fmt: skip


def cdi(subject: Subject, facts: NodeFacts) -> Iterator[Seen | Gap]:
    """Each CDI spec names files of the driver that is there."""
    specs, library = facts.value("container.cdi_specs"), facts.text("library.libcuda.version")
    if not isinstance(specs, tuple):
        yield gap("CDI specs", specs)
        return
    for spec in specs:
        drivers = facts.value(f"cdi[{spec}].drivers")
        if not isinstance(drivers, tuple):
            yield gap(f"the CDI spec {spec}", drivers)
        elif library is not None and any(driver != library for driver in drivers):
            words = f"{spec} names {', '.join(drivers)}, the library is {library}: containers get no GPU"
            todo = f"on the node: nvidia-ctk cdi generate --output={spec}"
            yield Seen(
                "cdi-stale", Severity.ERROR, "containers", words, todo, cause.brought(facts, library, cause.LIBRARY)
            )


def cdi_shadow(subject: Subject, facts: NodeFacts) -> Iterator[Seen | Gap]:
    """No CDI spec hides another one that says something else.

    The reference implementation (container-device-interface, `pkg/cdi`) lets the spec of the later folder win, /var/run/cdi over /etc/cdi, and
    takes a device out altogether that two specs of one folder define. Podman reads /etc/cdi alone unless it is told otherwise.
    """
    specs = facts.value("container.cdi_specs")
    devices: dict[str, list[str]] = {}
    for spec in specs if isinstance(specs, tuple) else ():
        named = facts.value(f"cdi[{spec}].devices")
        if not isinstance(named, tuple):
            yield gap(f"the devices of the CDI spec {spec}", named)
            continue
        for device in named:
            devices.setdefault(device, []).append(spec)
    together: dict[tuple[str, ...], list[str]] = {}
    for device, by in devices.items():
        if len(by) > 1:
            together.setdefault(tuple(by), []).append(device)
    for group, hidden in together.items():
        words = _shadow(facts, group)
        if words:
            more = f" and {len(hidden) - 1} more devices" if len(hidden) > 1 else ""
            todo = "keep one: rm the one that is not made anew (nvidia-cdi-refresh writes /var/run/cdi/nvidia.yaml)"
            yield Seen("cdi-shadowed", Severity.WARNING, "containers", f"{hidden[0]}{more}: {words}", todo)


def _shadow(facts: NodeFacts, specs: Sequence[str]) -> str:
    """What comes of several specs that define one device; empty where it makes no difference."""
    folders = [spec.rpartition("/")[0] for spec in specs]
    if len(set(folders)) < len(folders):
        return f"{' and '.join(specs)} define it in one folder: no runtime gives it to a container"
    drivers = [facts.value(f"cdi[{spec}].drivers") for spec in specs]
    if all(each == drivers[0] for each in drivers):
        return ""
    winner = max(specs, key=lambda spec: spec.startswith(("/var/run/cdi/", "/run/cdi/")))
    others = ", ".join(spec for spec in specs if spec != winner)
    return f"{winner} counts, and hides {others} of another driver; who reads /etc/cdi alone gets that one"


def developer(subject: Subject, facts: NodeFacts) -> Iterator[Seen | Gap]:
    """The loaded driver is none that came with a CUDA toolkit, and no package of a toolkit can bring one."""
    if not subject.developer_forbidden:
        return
    loaded, toolkits = facts.text("module.nvidia.loaded_version"), facts.value("cuda.toolkits")
    if not isinstance(toolkits, tuple):
        yield gap("CUDA toolkits", toolkits)
        return
    brought = [path for path in toolkits if loaded and facts.text(f"cuda[{path}].bundled_driver") == loaded]
    meta = [
        name
        for name in facts.members("package")
        if _WITH_DRIVER.fullmatch(name) and facts.text(f"package[{name}].state") == "installed"
    ]
    if meta:
        words = f"{', '.join(meta)} brings the driver with the CUDA toolkit: an upgrade of the one moves the other"
        todo = "install cuda-toolkit-X-Y in its place, and the driver by its own packages; or allow it: holds.developer_driver"
    elif brought and facts.value("runfile.installed") is True:
        version = facts.text(f"cuda[{brought[0]}].version") or "of an unknown version"
        words = f"{loaded} is the driver that came with CUDA {version} ({brought[0]})"
        todo = "nvidia-uninstall, and install a data centre driver by packages; or allow it: holds.developer_driver"
    else:
        return
    yield Seen("developer-driver", Severity.WARNING, "driver", words, todo, _bringer(facts, meta))


def _bringer(facts: NodeFacts, names: Sequence[str]) -> str:
    return next((words for name in names if (words := cause.installed(facts, name))), "")


def fabric(subject: Subject, facts: NodeFacts) -> Iterator[Seen | Gap]:
    """The fabric manager and IMEX are of the driver's version, and no service beside the driver has failed."""
    loaded, present = facts.text("module.nvidia.loaded_version"), facts.value("fabric_manager.present")
    own = facts.value("fabric_manager.version")
    versions = {"nvidia-fabricmanager": own} if isinstance(own, str) else {}
    for name in facts.members("package"):
        if _LOCKSTEP.fullmatch(name) and facts.text(f"package[{name}].state") == "installed":
            versions.setdefault(name.rstrip("0123456789").rstrip("-"), upstream(facts.text(f"package[{name}].version")))
    for name, version in versions.items():
        if loaded is not None and version != loaded:
            yield Seen(
                "fabric-manager-differs", Severity.ERROR, name, f"{name} is {version}, {loaded} is loaded: it refuses to start",
                "muster plan: bring the whole stack to one version", cause.newest(facts, (str(version), cause.FABRIC), (loaded, cause.MODULE)),
            )  # fmt: skip
    if not isinstance(present, bool) or (present and not versions):
        yield gap("the fabric manager", own if present is True else present)
    units = facts.value("service.present")
    states = {unit: facts.value(f"service[{unit}].state") for unit in units} if isinstance(units, tuple) else {}
    failed = [unit for unit, state in states.items() if state == "failed"]
    if failed:
        words = f"{', '.join(failed)} failed"
        yield Seen("service-failed", Severity.WARNING, "services", words, "on the node: systemctl status UNIT")
    unread = [state for state in states.values() if not isinstance(state, str)]
    if unread or not isinstance(units, tuple):
        yield gap("the services beside the driver", unread[0] if unread else units)


QUESTIONS: tuple[Question, ...] = (upgrades, kernel_hold, run_install, cdi, cdi_shadow, developer, fabric)
