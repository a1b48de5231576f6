"""Puts a site together: the one place that names concrete backends. Reads the policy and the inventory; opens the store."""

from __future__ import annotations

import hashlib
import os
import pwd
import shutil
import sys
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager, suppress
from datetime import datetime
from functools import cache, partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, assert_never, cast
from urllib.parse import urlsplit

from muster.backends.secret import read_secret
from muster.backends.store.sqlite import open_store
from muster.backends.system import SeededRng, SystemClock, UlidIds
from muster.control.inventory import merged
from muster.control.policy import find_policy, read_policy
from muster.control.site import SITE_FOLDER, Makers, Site
from muster.discovery import discover, one
from muster.knowledge.loader import load
from muster.model.errors import BadInput, MissingTool, Partial
from muster.model.inventory import Listing
from muster.model.job import SchedulerView
from muster.model.node import LOCAL_ADDRESS, Node
from muster.model.policy import AnsibleSource, DirectorySource, HostsSource, LocalSource, SlurmSource
from muster.ports import RuledPackages

if TYPE_CHECKING:
    from muster.control.lock import CarrierLock
    from muster.executor.look import Program
    from muster.model.capture import CaptureSpec
    from muster.model.command import Command, Outcome
    from muster.model.fact import FactSpec
    from muster.model.inventory import Inventory
    from muster.model.job import Answer
    from muster.model.policy import InventorySource, Policy, Validation
    from muster.model.validation import Floors
    from muster.ports import Clock, Notifier, PackageManager, Scheduler, Store, Transport, Validator


def store_path(policy: Policy, given: str | None) -> Path:
    """Where the store lies: --store, $MUSTER_STORE, $XDG_STATE_HOME/muster/<fleet>/muster.db. Raises BadInput for an unknown kind of URL."""
    named = given or os.environ.get("MUSTER_STORE")
    if not named:
        state = os.environ.get("XDG_STATE_HOME") or str(Path.home() / ".local" / "state")
        return Path(state) / "muster" / policy.fleet / "muster.db"
    scheme, separator, rest = named.partition("://")
    if not separator:
        return Path(named)
    if scheme != "sqlite":
        raise BadInput(
            f"store {named!r}: this release keeps its store in SQLite", hint="write a path, or sqlite:///PATH"
        )
    return Path("/" + rest.lstrip("/")) if rest.startswith("/") else Path(rest)


def knowledge_folder(policy: Policy, folder: Path, store: Path) -> Path:
    """Where the site's own knowledge lies: in the folder that the policy names (seen from its own folder), else beside the store."""
    return store.parent / SITE_FOLDER if policy.knowledge is None else folder / policy.knowledge


def own_knowledge(fleet: str | None, store: str | None) -> Path | None:
    """The same for commands that need no policy: None where there is none. Raises BadInput for one that was named and cannot be read."""
    policy_file = find_policy(fleet)
    if fleet is None and not policy_file.exists():
        return None
    policy = read_policy(policy_file)
    return knowledge_folder(policy, policy_file.resolve().parent, store_path(policy, store))


SLURM_ANSWER_BYTES = 512 * 1024 * 1024
"""`squeue --json` of a hundred thousand jobs; nothing of it is kept but what is read out of it."""


async def inventory(policy: Policy, folder: Path, asked: SlurmAsked, store: Store) -> Inventory:
    """The nodes of all the policy's sources, put together. Raises BadInput, MissingTool or Partial for a source that cannot be read.

    A Slurm that does not answer stops no command: its nodes are then those that were collected last, and a warning says so. Where none ever
    was and Slurm is the only source, there is nothing to go on with, and it raises.
    """
    return merged(
        [await _listing(source, folder, asked, store, alone=len(policy.inventory) == 1) for source in policy.inventory]
    )


class SlurmAsked:
    """What Slurm said to this process: its nodes are asked for once, at the first need."""

    def __init__(self) -> None:
        self._made: Any = None
        self._answer: Answer | None = None

    def _reader(self) -> Any:
        if self._made is None:
            _need_loop()
            self._made = _late("muster.backends.schedulers", "slurm", "SlurmReader")(_slurm_commands())
        return self._made

    async def nodes(self) -> Answer:
        """Its nodes. Raises as `SlurmReader.nodes` does."""
        if self._answer is None:
            self._answer = cast("Answer", await self._reader().nodes())
        return self._answer

    async def view(self) -> SchedulerView:
        """Its nodes and the jobs on them, or why they are not known."""
        try:
            return SchedulerView("Slurm", (await self.nodes()).nodes, await self._reader().running())
        except (BadInput, MissingTool, Partial) as error:
            return SchedulerView("Slurm", trouble=error.message)


def _slurm_commands() -> Transport:
    """Runs Slurm's commands here."""
    made = _late("muster.backends.transport", "local", "LocalTransport")(output_cap_bytes=SLURM_ANSWER_BYTES)
    return cast("Transport", made)


def _mixed(transport: Transport) -> Scheduler:
    """Slurm for the nodes that it lists; the others are asked themselves, over `transport`."""
    kind = partial(_late, "muster.backends.schedulers")
    slurm = kind("slurm", "SlurmScheduler")(_slurm_commands())
    return cast("Scheduler", kind("mixed", "MixedScheduler")(slurm, kind("none", "NoScheduler")(transport)))


async def _no_view() -> SchedulerView:
    return SchedulerView()


async def _slurm(source: SlurmSource, asked: SlurmAsked, store: Store, *, alone: bool) -> Listing:
    try:
        return cast(Listing, _late("muster.backends.inventory", "slurm", "listing")(await asked.nodes(), source))
    except (MissingTool, Partial) as error:
        remembered = _late("muster.backends.inventory", "slurm", "remembered")
        known = cast(Listing, remembered(await store.nodes(), source, error.message))
        if alone and not known.nodes:
            raise
        return known


async def _listing(source: InventorySource, folder: Path, asked: SlurmAsked, store: Store, *, alone: bool) -> Listing:
    match source:
        case AnsibleSource(path=path):
            return _reader("ansible")(folder / path)
        case HostsSource(path=path):
            return Listing(str(folder / path), _late("muster.backends.inventory", "hosts", "read")(folder / path))
        case SlurmSource():
            return await _slurm(source, asked, store, alone=alone)
        case LocalSource():
            return Listing("local", (Node(os.uname().nodename, LOCAL_ADDRESS, None, None, {}, "local"),))
        case DirectorySource(path=path):
            return _reader("directory")(folder / path)
        case _:
            assert_never(source)


class NeedsLoop(Exception):
    """This site cannot be opened without an event loop; nothing was done yet."""


def _need_loop() -> None:
    asyncio = sys.modules.get("asyncio")
    try:
        if asyncio is None:
            raise NeedsLoop
        asyncio.get_running_loop()
    except RuntimeError:
        raise NeedsLoop from None


def _reader(kind: str) -> Callable[[Path], Listing]:
    return cast("Callable[[Path], Listing]", _late("muster.backends.inventory", kind, "read"))


def _late(package: str, module: str, name: str) -> Callable[..., Any]:
    """What a module declares, loaded now: most commands need few of the parts of a site, and would wait for all of them."""
    return cast(Callable[..., Any], one(package, module, name))


def fact_specs() -> tuple[FactSpec, ...]:
    """All sources of facts, by name."""
    return tuple(cast("FactSpec", spec) for spec in discover("muster.facts", "FACT").values())


def script_to_carry() -> str:
    """The text that looks at a node and prints a file for `collect --from`; another one at each call."""
    rows = [(spec.name, spec.command, spec.deadline_s, spec.cap_bytes) for spec in fact_specs()]
    render = _late("muster.node", "carry", "render_carried")
    return cast(str, render(rows, UlidIds(SystemClock()).new("frame").rpartition("-")[2]))


def script_to_install() -> str:
    """The program that looks at a node, to be installed there; always the same for one release."""
    rows = [(spec.name, spec.command, spec.deadline_s, spec.cap_bytes) for spec in fact_specs()]
    return cast(str, _late("muster.node", "collect", "render_installed")(rows))


def program(policy: Policy) -> Program | None:
    """What `collect` runs on the nodes when the policy names a program there."""
    if policy.ssh.script is None:
        return None
    made = _late("muster.executor", "look", "Program")
    return cast("Program", made(policy.ssh.script, hashlib.sha256(script_to_install().encode()).hexdigest()))


def capture_readers() -> tuple[CaptureSpec, ...]:
    """All readers of captured outputs: of what tools print on nodes, of what schedulers answer, of what the nodes' own sources print."""
    readers = tuple(cast("CaptureSpec", reader) for reader in discover("muster.facts.captures", "READER").values())
    of_source = _late("muster.facts", "captures", "of_source")
    readers += cast("tuple[CaptureSpec, ...]", _late("muster.backends", "_scheduler_captures", "READERS"))
    return readers + tuple(of_source(spec) for spec in fact_specs())


def package_managers(policy: Policy | None = None, folder: Path | None = None) -> Mapping[str, PackageManager]:
    """All package managers, by name; under what a policy says of packages and holds, as far as they can heed it."""
    found = {
        name: cast("PackageManager", each) for name, each in discover("muster.backends.packages", "BACKEND").items()
    }
    if policy is None:
        return found
    rules, holds, key = policy.packages, policy.holds, ""
    if rules.repository is not None and rules.repository.key is not None:
        key = _key((folder or Path()) / rules.repository.key)
    return {
        name: each.under(rules, holds, key) if isinstance(each, RuledPackages) else each for name, each in found.items()
    }


def _key(file: Path) -> str:
    """The text of a signing key. Raises BadInput for a file that cannot be read, or that is not the armoured form, which goes into a script."""
    try:
        text = file.read_text(encoding="ascii")
    except (OSError, UnicodeDecodeError) as error:
        raise BadInput(f"packages: repository: key {file}: {error}", hint="gpg --armor --export KEY >FILE") from None
    if not text.startswith("-----BEGIN PGP PUBLIC KEY BLOCK-----") or len(text) > MOST_KEY_BYTES:
        raise BadInput(
            f"packages: repository: key {file} is no armoured public key", hint="gpg --armor --export KEY >FILE"
        )
    return text


MOST_KEY_BYTES = 64 * 1024


def make_validator(wanted: Validation, floors: Floors) -> Validator:
    """The validators that the policy wants, as one."""
    kind = partial(_late, "muster.backends.validators")
    parts: list[Validator] = [kind("builtin", "BuiltinValidator")(floors, wanted.nccl)] if wanted.builtin else []
    parts += [kind("dcgm", "DcgmValidator")(wanted.dcgm)] if wanted.dcgm is not None else []
    if wanted.command is not None:
        # Where the built-in one runs, the floors of its metrics are its own affair: a command need not measure them again.
        theirs = floors_of(floors, cast("Sequence[str]", kind("builtin", "METRICS"))) if wanted.builtin else floors
        parts.append(kind("command", "CommandValidator")(wanted.command, theirs))
    return parts[0] if len(parts) == 1 else cast("Validator", _late("muster.backends", "_combined", "Combined")(parts))


def floors_of(floors: Floors, without: Sequence[str]) -> Floors:
    """The floors of all metrics but these."""
    fixed = {metric: minimum for metric, minimum in floors.fixed.items() if metric not in without}
    return Floors(fixed, tuple(metric for metric in floors.learning if metric not in without), floors.learnt)


def now_utc() -> datetime:
    """This machine's time, for commands that have no site."""
    return SystemClock().now()


def this_clock() -> Clock:
    """This machine's clock, for what goes on from one site to the next."""
    return SystemClock()


def make_notifiers(argv: Sequence[str], webhook: str | None) -> tuple[Notifier, ...]:
    """Those who are to be told: by the operator's own program, by an HTTP POST. Raises BadInput, MissingTool for what could never deliver."""
    made: list[Notifier] = []
    if argv:
        if shutil.which(argv[0]) is None:
            raise MissingTool(
                f"--alert-command: {argv[0]!r} is no program here",
                hint="give its whole path; a shell script must be executable",
            )
        local = _late("muster.backends.transport", "local", "LocalTransport")()
        made.append(_late("muster.backends.notify", "command", "CommandNotifier")(argv, local))
    if webhook:
        parts = urlsplit(webhook)
        if parts.scheme not in ("http", "https") or not parts.hostname:
            raise BadInput("--alert-webhook: this is no http or https URL", hint="as in https://alerts.example/hook")
        kind = cast("Callable[..., Notifier]", one("muster.backends.notify", "webhook", "BACKEND"))
        made.append(kind(webhook, SystemClock()))
    return tuple(made)


def watch_lock(store: Path) -> CarrierLock:
    """The lock of the process that watches the nodes of a store, and tells people."""
    return _lock(f"{store}.watch.lock")


def carrier_lock(store: Path) -> CarrierLock:
    """The lock of the process that carries the rollouts of a store."""
    return _lock(f"{store}.lock")


def _lock(file: str) -> CarrierLock:
    return cast("CarrierLock", _late("muster.control", "lock", "CarrierLock")(file, SystemClock()))


@asynccontextmanager
async def open_site(fleet: str | None, store: str | None) -> AsyncIterator[Site]:
    """The site of a policy file and a store; closed at the end. Raises BadInput for what cannot be read, StoreTooNew, StoreBroken."""
    policy_file = find_policy(fleet)
    policy = read_policy(policy_file)
    folder = policy_file.resolve().parent
    path = store_path(policy, store)
    clock = SystemClock()
    opened = open_store(str(path), tell=_note)
    asked = SlurmAsked()
    try:
        found = await inventory(policy, folder, asked, opened)
        remote = ssh_transport(policy, folder)
    except BaseException:
        await opened.close()
        raise
    has_slurm = any(isinstance(source, SlurmSource) for source in policy.inventory)
    transport = _LateTransport(lambda: _reach(policy, remote))
    makers = Makers(
        specs=cache(fact_specs),
        managers=cache(lambda: package_managers(policy, folder)),
        scheduler=cache(lambda: _mixed if has_slurm else _late("muster.backends.schedulers", "none", "NoScheduler")),
        validator=lambda floors: make_validator(policy.validate, floors),
        program=cache(lambda: program(policy)),
        engine=cache(lambda: _late("muster.backends.engine", "embedded", "EmbeddedEngine")(opened, clock, _on_fault)),
    )
    try:
        yield Site(
            policy=policy,
            policy_path=policy_file,
            store_path=path,
            store=opened,
            clock=clock,
            ids=UlidIds(clock),
            rng=SeededRng(f"{policy.fleet}/{policy.revision}"),
            transport=transport,
            makers=makers,
            person=person(),
            holder=f"{person()}@{os.uname().nodename}",
            inventory=found,
            carried=lambda where: _late("muster.backends.inventory", "directory", "carried")(
                where, makers.specs(), clock.now()
            ),
            knowledge=cache(lambda: load(knowledge_folder(policy, folder, path))),
            spawn_carrier=_carrier(policy_file, path),
            scheduler_view=asked.view if has_slurm else _no_view,
        )
    finally:
        await transport.close()
        await opened.close()


def _reach(policy: Policy, remote: Transport) -> Transport:
    local = _late("muster.backends.transport", "local", "LocalTransport")()
    reach = _late("muster.control", "reach", "Reach")
    return cast("Transport", reach(remote, local, sudo=policy.ssh.sudo and os.geteuid() != 0))


class _LateTransport:
    """A transport that is loaded at its first command: most of the commands a person types look at no node, and SSH is slow to load."""

    def __init__(self, make: Callable[[], Transport]) -> None:
        self._make = make
        self._made: Transport | None = None

    async def run(self, node: Node, command: Command) -> Outcome:
        """See `ports.Transport.run`."""
        if self._made is None:
            self._made = self._make()
        return await self._made.run(node, command)

    async def close(self) -> None:
        """See `ports.Transport.close`."""
        if self._made is not None:
            await self._made.close()


def ssh_transport(policy: Policy, folder: Path) -> Transport:
    """The SSH transport as the policy's `ssh` section says; paths are relative to the policy's folder.

    Raises BadInput when the SSH configuration that the policy names is not there; its first command raises what `read_secret` does.
    """
    config = None
    if policy.ssh.config is not None:
        file = folder / Path(policy.ssh.config).expanduser()
        if not os.access(file, os.R_OK):
            raise BadInput(
                f"{file}: cannot be read, and the policy's `ssh: config:` names it",
                hint="mend the path, or leave `config` out to use your own ~/.ssh/config",
            )
        config = (str(file),)

    def make() -> Transport:
        kind = cast("Callable[..., Transport]", one("muster.backends.transport", "ssh", "BACKEND"))
        secret = policy.ssh.sudo_password
        password = None if secret is None else read_secret(secret, folder, what="ssh: sudo_password")
        return kind(
            config=config,
            user=policy.ssh.user,
            port=policy.ssh.port,
            sudo=policy.ssh.sudo,
            sudo_password=password,
            connect_concurrency=policy.ssh.concurrency,
            connect_timeout_s=policy.ssh.connect_timeout_s,
        )

    return _LateTransport(make)


def _carrier(policy_file: Path, store: Path) -> Callable[[], Callable[[], bool]]:
    argv = [
        sys.executable,
        "-m",
        "muster",
        "serve",
        "--until-done",
        "--fleet",
        str(policy_file.resolve()),
        "--store",
        str(store),
    ]

    def spawn() -> Callable[[], bool]:
        start = cast("Callable[..., Callable[[], bool]]", _late("muster.backends", "process", "spawn_detached"))
        return start(argv, Path(f"{store}.log"))

    return spawn


def _on_fault(run_id: str, error: Exception) -> None:
    _note(f"{run_id}: {type(error).__name__}: {error}")


def _note(line: str) -> None:
    sys.stderr.write(f"{line}\n")
    sys.stderr.flush()


def person() -> str:
    """Who is at work: the user who logged in (the kernel keeps that over sudo), else the real user. The environment is not asked."""
    uid = os.getuid()
    with suppress(OSError, ValueError):
        logged_in = int(Path("/proc/self/loginuid").read_text())
        if logged_in != _NO_LOGIN:
            uid = logged_in
    try:
        return pwd.getpwuid(uid).pw_name
    except KeyError:
        return f"uid-{uid}"


_NO_LOGIN = 2**32 - 1
"""What /proc/self/loginuid says of a process that no login began."""


__all__ = ["carrier_lock", "fact_specs", "inventory", "now_utc", "open_site", "package_managers", "store_path"]
