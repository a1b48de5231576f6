"""Puts a site together: the one place that names concrete backends. Reads the policy and the inventory; opens the store."""

import hashlib
import os
import pwd
import shutil
import socket
import sys
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager, suppress
from datetime import datetime
from functools import cache
from pathlib import Path
from typing import assert_never, cast
from urllib.parse import urlsplit

from muster.backends.engine.embedded import EmbeddedEngine
from muster.backends.inventory import ansible, directory, hosts, slurm
from muster.backends.notify.command import CommandNotifier
from muster.backends.process import spawn_detached
from muster.backends.schedulers.none import NoScheduler
from muster.backends.secret import read_secret
from muster.backends.store.sqlite import open_store
from muster.backends.system import SeededRng, SystemClock, UlidIds
from muster.backends.transport.local import LocalTransport
from muster.backends.validators.builtin import BuiltinValidator
from muster.control.inventory import merged
from muster.control.lock import CarrierLock
from muster.control.policy import find_policy, read_policy
from muster.control.reach import Reach
from muster.control.site import SITE_FOLDER, Site
from muster.discovery import discover, one
from muster.executor.look import Program
from muster.facts.captures import of_source
from muster.knowledge.loader import load
from muster.model.capture import CaptureSpec
from muster.model.command import Command, Outcome
from muster.model.errors import BadInput, MissingTool
from muster.model.fact import FactSpec
from muster.model.inventory import Inventory, Listing
from muster.model.node import LOCAL_ADDRESS, Node
from muster.model.policy import (
    AnsibleSource,
    DirectorySource,
    HostsSource,
    InventorySource,
    LocalSource,
    Policy,
    SlurmSource,
)  # fmt: skip
from muster.node.carry import render_carried
from muster.node.collect import render_installed
from muster.ports import Clock, Notifier, PackageManager, Transport


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


async def inventory(policy: Policy, folder: Path) -> Inventory:
    """The nodes of all the policy's sources, put together. Raises BadInput, MissingTool or Partial for a source that cannot be read."""
    return merged([await _listing(source, folder) for source in policy.inventory])


async def _listing(source: InventorySource, folder: Path) -> Listing:
    match source:
        case AnsibleSource(path=path):
            return ansible.read(folder / path)
        case HostsSource(path=path):
            return Listing(str(folder / path), hosts.read(folder / path))
        case SlurmSource():
            return await slurm.read(LocalTransport(output_cap_bytes=SLURM_ANSWER_BYTES), source)
        case LocalSource():
            return Listing("local", (Node(socket.gethostname(), LOCAL_ADDRESS, None, None, {}, "local"),))
        case DirectorySource(path=path):
            return directory.read(folder / path)
        case _:
            assert_never(source)


def fact_specs() -> tuple[FactSpec, ...]:
    """All sources of facts, by name."""
    return tuple(cast(FactSpec, spec) for spec in discover("muster.facts", "FACT").values())


def script_to_carry() -> str:
    """The text that looks at a node and prints a file for `collect --from`; another one at each call."""
    rows = [(spec.name, spec.command, spec.deadline_s, spec.cap_bytes) for spec in fact_specs()]
    return render_carried(rows, UlidIds(SystemClock()).new("frame").rpartition("-")[2])


def script_to_install() -> str:
    """The program that looks at a node, to be installed there; always the same for one release."""
    return render_installed([(spec.name, spec.command, spec.deadline_s, spec.cap_bytes) for spec in fact_specs()])


def program(policy: Policy) -> Program | None:
    """What `collect` runs on the nodes when the policy names a program there."""
    if policy.ssh.script is None:
        return None
    return Program(policy.ssh.script, hashlib.sha256(script_to_install().encode()).hexdigest())


def capture_readers() -> tuple[CaptureSpec, ...]:
    """All readers of captured outputs, by name; after them those of what the nodes' own sources print."""
    readers = tuple(cast(CaptureSpec, reader) for reader in discover("muster.facts.captures", "READER").values())
    return readers + tuple(of_source(spec) for spec in fact_specs())


def package_managers() -> Mapping[str, PackageManager]:
    """All package managers, by name."""
    return {name: cast(PackageManager, each) for name, each in discover("muster.backends.packages", "BACKEND").items()}


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
        made.append(CommandNotifier(argv, LocalTransport()))
    if webhook:
        parts = urlsplit(webhook)
        if parts.scheme not in ("http", "https") or not parts.hostname:
            raise BadInput("--alert-webhook: this is no http or https URL", hint="as in https://alerts.example/hook")
        kind = cast(Callable[..., Notifier], one("muster.backends.notify", "webhook", "BACKEND"))
        made.append(kind(webhook, SystemClock()))
    return tuple(made)


def watch_lock(store: Path) -> CarrierLock:
    """The lock of the process that watches the nodes of a store, and tells people."""
    return CarrierLock(f"{store}.watch.lock", SystemClock())


def carrier_lock(store: Path) -> CarrierLock:
    """The lock of the process that carries the rollouts of a store."""
    return CarrierLock(f"{store}.lock", SystemClock())


@asynccontextmanager
async def open_site(fleet: str | None, store: str | None) -> AsyncIterator[Site]:
    """The site of a policy file and a store; closed at the end. Raises BadInput for what cannot be read, StoreTooNew, StoreBroken."""
    policy_file = find_policy(fleet)
    policy = read_policy(policy_file)
    folder = policy_file.resolve().parent
    found = await inventory(policy, folder)
    path = store_path(policy, store)
    clock = SystemClock()
    opened = open_store(str(path), tell=_note)
    transport = Reach(ssh_transport(policy, folder), LocalTransport(), sudo=policy.ssh.sudo and os.geteuid() != 0)
    specs = fact_specs()
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
            specs=specs,
            managers=package_managers(),
            scheduler=NoScheduler,
            validator=BuiltinValidator(),
            engine=EmbeddedEngine(opened, clock, _on_fault),
            person=person(),
            holder=f"{person()}@{socket.gethostname()}",
            inventory=found,
            carried=lambda where: directory.carried(where, specs, clock.now()),
            knowledge=cache(lambda: load(knowledge_folder(policy, folder, path))),
            spawn_carrier=_carrier(policy_file, path),
            program=program(policy),
        )
    finally:
        await transport.close()
        await opened.close()


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
        kind = cast(Callable[..., Transport], one("muster.backends.transport", "ssh", "BACKEND"))
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


def _carrier(policy_file: Path, store: Path) -> Callable[[], None]:
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

    def spawn() -> None:
        spawn_detached(argv, Path(f"{store}.log"))

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
