"""`fleet.yaml` text to a checked `Policy` value.

Why it exists: whoever writes a policy hears everything that is wrong with it at once, each with file, line and what to
do, before any node is touched. It stands in the planner because the linter holds the planner pure: a policy is read
from text alone. It opens no file (`control.policy` does), and whether a wish can be met is the solver's to say.
"""

import hashlib
import json
import re
import shlex
from collections.abc import Callable, Mapping
from decimal import Decimal
from types import MappingProxyType
from typing import Final

from muster.documents import (
    Document,
    Entry,
    Fault,
    Fields,
    Map,
    Node,
    Reader,
    Scalar,
    Sequence,
    compose,
    did_you_mean,
    plain,
    refused,
)
from muster.model.policy import (
    SCHEMA,
    AnsibleSource,
    DirectorySource,
    EditedFiles,
    Floor,
    Holds,
    HostsSource,
    InventorySource,
    LocalSource,
    Packages,
    Policy,
    Pool,
    Repository,
    Rollout,
    SecretFrom,
    Security,
    Severity,
    SlurmSource,
    Ssh,
    Tier,
    Validation,
)
from muster.model.quantities import DURATION_HINT, Amount, parse_duration_s
from muster.planner.policy_pools import PERMISSIONS, Checks, name_text, pool_lines, read_pools

REQUIRED: Final = ("schema", "fleet", "inventory", "pools")
SECTIONS: Final = (*REQUIRED, "knowledge", "ssh", "rollout", "holds", "packages", "security", "validate")
# What the built-in validator measures; a site's own command may report metrics of any name.
BUILTIN_METRICS: Final = (
    "matmul_tflops", "memory_gbps", "h2d_gbps", "d2h_gbps", "d2d_gbps", "peer_gbps", "allreduce_gbps",
)  # fmt: skip

_PATH_SOURCES: Final[Mapping[str, Callable[[str], InventorySource]]] = {
    "ansible": AnsibleSource,
    "hosts": HostsSource,
    "directory": DirectorySource,
}
_SOURCES: Final = (*_PATH_SOURCES, "local", "slurm")
_BOOLEANS: Final = {"true": True, "false": False}
_SEVERITIES: Final = {severity.value: severity for severity in Severity}
_METRIC = re.compile(r"[a-z][a-z0-9_]{0,62}", re.ASCII)
_DCGM_LEVELS: Final = {"1": 1, "2": 2, "3": 3, "4": 4}
_LIBRARY_HINT = "the path of a libnccl.so.2 on the nodes, as in /opt/nccl/lib/libnccl.so.2"
_NUMBER = re.compile(r"[0-9]{1,9}(?:\.[0-9]{1,6})?", re.ASCII)


def policy_from_document(text: str, name: str, checks: Checks | None = None) -> Policy:
    """The policy in `text`; `name` is what messages call the file. Raises DocumentFaults with every fault.

    Without `checks`, time zones and GPU families are taken at their word.
    """
    document = compose(text, name)
    _check_schema(document)
    reader = Reader(document)
    fields = reader.fields(document.root, "policy", SECTIONS, required=REQUIRED)
    inventory, pools = fields.node_of("inventory"), fields.node_of("pools")
    ssh, rollout, holds = fields.node_of("ssh"), fields.node_of("rollout"), fields.node_of("holds")
    security, validate, packages = fields.node_of("security"), fields.node_of("validate"), fields.node_of("packages")
    own_knowledge = fields.value(
        "knowledge", _checked((checks or Checks()).knowledge), None, "a folder, as seen from this file"
    )
    policy = Policy(
        fleet=fields.value("fleet", name_text, "", "a short name such as prod-eu"),
        inventory=() if inventory is None else _inventory(reader, inventory),
        pools=() if pools is None else read_pools(reader, pools, checks or Checks()),
        ssh=Ssh() if ssh is None else _ssh(reader, ssh),
        rollout=Rollout() if rollout is None else _rollout(reader, rollout),
        holds=Holds() if holds is None else _holds(reader, holds),
        packages=Packages() if packages is None else _packages(reader, packages),
        security=Security() if security is None else _security(reader, security),
        validate=Validation() if validate is None else _validation(reader, validate),
        knowledge=own_knowledge,
        revision=revision_of(document.root),
        lines=_lines(reader, fields),
    )
    _check_approvals(reader, policy.rollout, policy.pools, rollout, policy.lines)
    reader.finish()
    return policy


def _checked(check: Callable[[str], None]) -> Callable[[str], str | None]:
    """The text itself, once a check raised nothing about it."""

    def convert(text: str) -> str:
        check(text)
        return text

    return convert


def revision_of(root: Node) -> str:
    """SHA-256 over the canonical JSON of a document: the same whatever its comments, quotes and order of keys."""
    canonical = json.dumps(plain(root), sort_keys=True, ensure_ascii=False, separators=(",", ":"))
    return hashlib.sha256(canonical.encode()).hexdigest()


def _check_schema(document: Document) -> None:
    """Refuse a policy of another schema before anything else: its other faults would be beside the point."""
    node = document.root.get("schema") if isinstance(document.root, Map) else None
    if node is None or (isinstance(node, Scalar) and node.text == str(SCHEMA)):
        return
    shown = node.text if isinstance(node, Scalar) and node.text else "of this form"
    message = f"schema {shown} is not known; this release reads schema {SCHEMA}"
    hint = f"write 'schema: {SCHEMA}', or use the release of Muster that the file was written for"
    raise refused(document.name, (*document.faults, Fault(node.line, node.column, message, hint)))


def _inventory(reader: Reader, node: Node) -> tuple[InventorySource, ...]:
    items = reader.items(node, "inventory", "write one '- ansible: FILE' or '- slurm: {...}' a line")
    if isinstance(node, Sequence) and not items:
        reader.fault(node, "inventory lists no source", f"one of {', '.join(sorted(_SOURCES))}")
    sources: dict[InventorySource, int] = {}
    for item in items:
        source = _source(reader, item)
        if source is None:
            continue
        if source in sources:
            message = f"inventory: the same source as on line {sources[source]}"
            reader.fault(item, message, "keep one of the two")
        sources.setdefault(source, item.line)
    return tuple(sources)


def _source(reader: Reader, node: Node) -> InventorySource | None:
    if not isinstance(node, Map) or len(node.entries) != 1:
        reader.fault(node, "inventory: a source is one 'KIND: ...'", f"one of {', '.join(sorted(_SOURCES))}")
        return None
    entry = node.entries[0]
    what = f"inventory: {entry.key}"
    if entry.key == "slurm":
        return _slurm(reader, entry)
    if entry.key == "local":
        if not reader.choice(entry.value, what, {"true": True}, default=True):
            return None
        return LocalSource()
    if entry.key not in _PATH_SOURCES:
        reader.fault(entry, f"inventory has no source {entry.key!r}", did_you_mean(entry.key, _SOURCES))
        return None
    return _PATH_SOURCES[entry.key](reader.text(entry.value, what, hint="a path, relative to the folder of this file"))


def _slurm(reader: Reader, entry: Entry) -> SlurmSource:
    fields = reader.fields(entry.value, "inventory: slurm", ("partitions",))
    node = fields.node_of("partitions")
    if node is None:
        return SlurmSource()
    what = "inventory: slurm: partitions"
    items = reader.items(node, what)
    if isinstance(node, Sequence) and not items:
        reader.fault(node, f"{what} lists none", "remove the key to take all partitions")
    return SlurmSource(tuple(reader.text(item, what, hint="the name of a partition") for item in items))


def _whole(least: int, most: int, text: str) -> int:
    if not re.fullmatch(r"[0-9]{1,9}", text, re.ASCII) or not least <= int(text) <= most:
        raise ValueError(f"{text!r} is not a whole number from {least} to {most}")
    return int(text)


def _ssh(reader: Reader, node: Node) -> Ssh:
    fields = reader.fields(node, "ssh", _SSH_KEYS)
    default = Ssh()
    ssh = Ssh(
        user=fields.text("user", hint="a user name, or remove the key") or None,
        sudo=fields.choice("sudo", _BOOLEANS, default.sudo),
        sudo_password=_secret(reader, fields, "sudo_password"),
        script=fields.value("script", _program, None, "a whole path, such as /usr/local/sbin/muster-look"),
        config=fields.text("config", hint="the path of an SSH configuration, or remove the key") or None,
        port=fields.value("port", lambda text: _whole(1, 65535, text), None, "a TCP port such as 22"),
        # Ten thousand channels is beyond what one process can hold open with usual limits on descriptors.
        concurrency=fields.value(
            "concurrency", lambda text: _whole(1, 10_000, text), default.concurrency, "such as 100"
        ),
        connect_timeout_s=fields.value("connect_timeout", parse_duration_s, default.connect_timeout_s, DURATION_HINT),
    )
    timeout = fields.entry("connect_timeout")
    if timeout is not None and ssh.connect_timeout_s == 0:
        reader.fault(timeout, "ssh: connect_timeout 0 would reach no node", "such as 10s")
    secret = fields.entry("sudo_password")
    if secret is not None and not ssh.sudo:
        reader.fault(secret, "ssh: sudo_password is asked for by nobody", "write 'sudo: true' too, or remove the key")
    return ssh


_SSH_KEYS = ("user", "sudo", "sudo_password", "script", "config", "port", "concurrency", "connect_timeout")


def _program(text: str) -> str:
    if not re.fullmatch(r"/[A-Za-z0-9._/+-]{1,200}", text, re.ASCII):
        raise ValueError(f"{text!r} is no whole path of plain letters")
    return text


def _secret(reader: Reader, fields: Fields, key: str) -> SecretFrom | None:
    """Where the secret under `key` is. The secret itself has no place in the file, and what stands there instead is not repeated."""
    node = fields.node_of(key)
    if node is None:
        return None
    if isinstance(node, Scalar) and node.text == "prompt":
        return SecretFrom("prompt")
    entry = node.entries[0] if isinstance(node, Map) and len(node.entries) == 1 else None
    if entry is None or entry.key not in ("env", "file"):
        hint = "one of {env: NAME}, {file: PATH}, prompt; a secret itself does not belong here"
        reader.fault(node, f"ssh: {key} does not say where the secret is", hint)
        return None
    return SecretFrom(
        entry.key, reader.text(entry.value, f"ssh: {key}: {entry.key}", hint="a name, as in {env: SUDO_PASSWORD}")
    )


def _rollout(reader: Reader, node: Node) -> Rollout:
    fields = reader.fields(node, "rollout", ("stages", "soak", "control", "approvals"))
    default = Rollout()
    stages, soak = fields.node_of("stages"), fields.node_of("soak")
    canary, shares = (default.canary, default.shares) if stages is None else _stages(reader, stages)
    control = _control(fields, default.control)
    _check_control(reader, fields, shares, control)
    first, later = (default.canary_soak_s, default.later_soak_s) if soak is None else _soak(reader, soak, canary=canary)
    return Rollout(
        canary=canary,
        shares=shares,
        canary_soak_s=first,
        later_soak_s=later,
        control=control,
        approvals=fields.value(
            "approvals", lambda text: _whole(0, 9, text), default.approvals, "how many people must agree"
        ),
    )


def _control(fields: Fields, default: Amount | None) -> Amount | None:
    node = fields.node_of("control")
    if isinstance(node, Scalar) and node.text == "none":
        return None

    def convert(text: str) -> Amount | None:
        share = Amount.parse(text)
        if not share.is_share or share.basis_points > 5000:
            raise ValueError(f"{text!r} is not a share of at most 50%")
        return share

    return fields.value("control", convert, default, "a share such as 5%, or none")


def _check_control(reader: Reader, fields: Fields, shares: tuple[Amount, ...], control: Amount | None) -> None:
    """A stage that would need nodes that are held back for comparison can never be reached."""
    given, stages = fields.entry("control"), fields.entry("stages")
    if control is None or given is None:
        return
    for share in shares[:-1]:
        if share.basis_points + control.basis_points > 10_000:
            where = f"line {stages.line}" if stages is not None else "by default"
            message = f"rollout: control {control} is held back to the end, and stage {share} ({where}) needs more than the rest"
            reader.fault(given, message, "a smaller control, or smaller stages")
            return


def _stages(reader: Reader, node: Node) -> tuple[bool, tuple[Amount, ...]]:
    what = "rollout: stages"
    items = reader.items(node, what, "such as [canary, 5%, 25%, 100%]")
    canary = bool(items) and isinstance(items[0], Scalar) and items[0].text == "canary"
    shares: list[Amount] = []
    last: tuple[Amount, Node] | None = None
    for item in items[1:] if canary else items:
        share = reader.value(
            item, what, _stage_share, None, "canary first, then growing shares such as 5%, ending in 100%"
        )
        if share is None:
            continue
        if last is not None and share.basis_points <= last[0].basis_points:
            message = f"{what}: {share} does not follow {last[0]} (line {last[1].line})"
            reader.fault(item, message, "each stage must be larger than the one before")
        last = (share, item)
        shares.append(share)
    if isinstance(node, Sequence) and (not shares or shares[-1].basis_points != 10_000):
        at = items[-1] if items else node
        reader.fault(at, f"{what} must end in 100%", "else a part of the fleet would never be changed")
    return canary, tuple(shares)


def _stage_share(text: str) -> Amount | None:
    if text == "canary":
        raise ValueError("canary can only be the first stage")
    share = Amount.parse(text)
    if not share.is_share:
        raise ValueError(f"{text!r} is a count; stages are shares")
    return share


def _soak(reader: Reader, node: Node, *, canary: bool) -> tuple[int, int]:
    fields = reader.fields(node, "rollout: soak", ("canary", "later"))
    default = Rollout()
    entry = fields.entry("canary")
    if entry is not None and not canary:
        reader.fault(entry, "rollout: soak: canary is given, but stages has no canary", "add canary as the first stage")
    return (
        fields.value("canary", parse_duration_s, default.canary_soak_s, DURATION_HINT),
        fields.value("later", parse_duration_s, default.later_soak_s, DURATION_HINT),
    )


def _check_approvals(
    reader: Reader, rollout: Rollout, pools: tuple[Pool, ...], node: Node | None, lines: Mapping[str, int]
) -> None:
    """Nobody asked is a statement for a test bench; beside a critical pool it is a contradiction."""
    given = node.get("approvals") if isinstance(node, Map) else None
    critical = next((pool for pool in pools if pool.tier is Tier.CRITICAL), None)
    if given is None or rollout.approvals != 0 or critical is None:
        return
    line = lines.get(f"pools.{critical.name}.tier", 0)
    message = f"rollout: approvals 0, but pool {critical.name} is critical (line {line})"
    reader.fault(given, message, "at least 1, or another tier")


def _holds(reader: Reader, node: Node) -> Holds:
    fields = reader.fields(node, "holds", ("driver", "kernel", "automatic_upgrades", "developer_driver"))
    default = Holds()
    return Holds(
        driver=fields.choice("driver", _BOOLEANS, default.driver),
        kernel=fields.choice("kernel", _BOOLEANS, default.kernel),
        automatic_upgrades=fields.choice("automatic_upgrades", PERMISSIONS, default.automatic_upgrades),
        developer_driver=fields.choice("developer_driver", PERMISSIONS, default.developer_driver),
    )


def _packages(reader: Reader, node: Node) -> Packages:
    fields = reader.fields(node, "packages", ("edited_files", "unsigned", "questions", "repository"))
    default, repository = Packages(), fields.node_of("repository")
    return Packages(
        edited_files=fields.choice("edited_files", {each.value: each for each in EditedFiles}, default.edited_files),
        unsigned=fields.choice("unsigned", PERMISSIONS, default.unsigned),
        questions=fields.choice("questions", PERMISSIONS, default.questions),
        repository=None if repository is None else _repository(reader, repository),
    )


def _repository(reader: Reader, node: Node) -> Repository | None:
    fields = reader.fields(node, "packages: repository", ("source", "key"), required=("source",))
    source = fields.value("source", _source_line, "", "as in sources.list: deb https://repository.example/debian12 ./")
    return Repository(source, fields.text("key", hint="the file of the signing key, as seen from this file") or None)


def _source_line(text: str) -> str:
    if not re.fullmatch(r"deb (?:https?|copy|file):/[!-~]{1,300}(?: [A-Za-z0-9./_-]{1,80}){1,8}", text, re.ASCII):
        raise ValueError(f"{text!r} is no line of an apt source without options")
    return text


def _security(reader: Reader, node: Node) -> Security:
    fields = reader.fields(node, "security", ("max_open_severity",))
    return Security(fields.choice("max_open_severity", _SEVERITIES, None))


def _validation(reader: Reader, node: Node) -> Validation:
    fields = reader.fields(node, "validate", ("builtin", "command", "floors", "dcgm", "nccl"))
    builtin = fields.choice("builtin", _BOOLEANS, default=True)
    command = _command(reader, fields.node_of("command"))
    dcgm = None if fields.is_null("dcgm") else fields.choice("dcgm", _DCGM_LEVELS, None)
    nccl = None if fields.is_null("nccl") else fields.value("nccl", _library, None, _LIBRARY_HINT)
    entry = fields.entry("builtin")
    if entry is not None and not builtin and command is None and dcgm is None:
        message = "validate: builtin is false and there is no command"
        reader.fault(entry, message, "an unvalidated node never returns to service; give a command, or builtin: true")
    given = fields.node_of("floors")
    floors = () if given is None else _floors(reader, given, any_name=command is not None)
    return Validation(builtin, command, floors, dcgm, nccl)


def _command(reader: Reader, node: Node | None) -> tuple[str, ...] | None:
    """A command line, or its argv as a list; null is none."""
    if node is None or (isinstance(node, Scalar) and node.text is None):
        return None
    hint = "a command line such as '/usr/local/bin/check --quick', or a list of its words"
    if isinstance(node, Sequence) and node.items:
        return tuple(reader.text(item, "validate: command", hint=hint) for item in node.items)
    return reader.value(node, "validate: command", _words, None, hint)


def _library(text: str) -> str | None:
    if not text.startswith("/") or "libnccl" not in text.rpartition("/")[2]:
        raise ValueError(f"{text!r} is not the whole path of a libnccl")
    return text


def _words(text: str) -> tuple[str, ...] | None:
    words = tuple(shlex.split(text))
    if not words:
        raise ValueError(f"{text!r} holds no command")
    return words


def _floors(reader: Reader, node: Node, *, any_name: bool) -> tuple[Floor, ...]:
    floors = []
    for entry in reader.entries(node, "validate: floors", "write {matmul_tflops: learn}"):
        if not _METRIC.fullmatch(entry.key) or (not any_name and entry.key not in BUILTIN_METRICS):
            message = f"validate: floors: the built-in validator measures no {entry.key!r}"
            reader.fault(entry, message, did_you_mean(entry.key, BUILTIN_METRICS))
        minimum = reader.value(entry.value, f"validate: floors: {entry.key}", _floor, None, "learn, or a number")
        floors.append(Floor(entry.key, minimum))
    return tuple(floors)


def _floor(text: str) -> Decimal | None:
    if text == "learn":
        return None
    if not _NUMBER.fullmatch(text) or not Decimal(text):
        raise ValueError(f"{text!r} is neither 'learn' nor a positive number")
    return Decimal(text)


def _lines(reader: Reader, fields: Fields) -> Mapping[str, int]:
    lines = {entry.key: entry.line for entry in fields}
    inventory, pools = fields.node_of("inventory"), fields.node_of("pools")
    if isinstance(inventory, Sequence):
        lines.update({f"inventory.{index}": item.line for index, item in enumerate(inventory.items)})
    if pools is not None:
        lines.update(pool_lines(reader, pools))
    for section in ("ssh", "rollout", "holds", "packages", "security", "validate"):
        node = fields.node_of(section)
        if isinstance(node, Map):
            lines.update({f"{section}.{entry.key}": entry.line for entry in node.entries})
    return MappingProxyType(lines)
