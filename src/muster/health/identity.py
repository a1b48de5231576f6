"""Are two names one machine? Pure; from facts alone.

Names are merged by what an inventory says, never by this: a cloned image has its template's machine-id, and a GPU that was moved is seen in
two machines until both are looked at. So it is a finding, with what to do, and a person decides.
"""

from collections.abc import Iterator, Mapping, Sequence

from muster.model.fact import NodeFacts, marks
from muster.model.finding import Finding, Severity


def one_machine(looks: Sequence[NodeFacts]) -> tuple[Finding, ...]:
    """A finding for each machine-id and each set of GPUs that stands under several names. `looks`: one a node, fresh ones."""
    by_gpu: dict[str, list[str]] = {}
    if _some_twice(marks(looks, "gpu", ".serial")):
        for facts in looks:
            for identity in _gpus(facts):
                by_gpu.setdefault(identity, []).append(facts.node)
    machines = [facts.text("machine.id") for facts in looks]
    by_id: dict[str, list[str]] = {}
    if _some_twice(machines):
        for facts, machine in zip(looks, machines, strict=True):
            if machine:
                by_id.setdefault(machine, []).append(facts.node)
    return (*_gpu_findings(by_gpu), *_id_findings(by_id))


def _some_twice(marked: Sequence[str | None]) -> bool:
    """Whether any mark stands there twice: in most fleets none does, and nobody need be asked whose it is."""
    return len(set(marked)) < len(marked)


def _gpus(facts: NodeFacts) -> tuple[str, ...]:
    """What identifies the GPUs of a node wherever they are: UUIDs, and serials of those that have one. Each once."""
    found = [key for key in facts.members("gpu") if key.startswith("GPU-")]
    serials = facts.column("gpu", ".serial").values()
    found += {
        f"serial {each}": None for each in serials if isinstance(each, str) and each.isalnum() and each.strip("0")
    }
    return tuple(found)


def _gpu_findings(by_gpu: Mapping[str, Sequence[str]]) -> Iterator[Finding]:
    shared: dict[tuple[str, ...], list[str]] = {}
    for identity, nodes in by_gpu.items():
        names = tuple(sorted(set(nodes)))
        if len(names) > 1:
            shared.setdefault(names, []).append(identity)
    for names, identities in shared.items():
        first = min(identities)
        more = f" and {len(identities) - 1} more" if len(identities) > 1 else ""
        yield Finding(
            "one-machine-two-names",
            Severity.ERROR,
            "inventory",
            names,
            f"{first}{more} answered under {len(names)} names",
            "name the machine once in the inventory; if a GPU was moved, run: muster collect",
        )


def _id_findings(by_id: Mapping[str, Sequence[str]]) -> Iterator[Finding]:
    for machine, nodes in by_id.items():
        names = tuple(sorted(set(nodes)))
        if len(names) > 1:
            yield Finding(
                "machine-id-not-unique",
                Severity.WARNING,
                "inventory",
                names,
                f"machine-id {machine} is that of {len(names)} names",
                "one machine: name it once in the inventory; a cloned image: rm /etc/machine-id; systemd-machine-id-setup",
            )
