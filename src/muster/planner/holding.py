"""From a node whose driver anybody may change to the one step that holds it. Pure.

No package changes by it and the node stays in service: it is not drained, not restarted and not validated. What is held says the policy.
"""

from collections.abc import Mapping, Sequence

from muster.model.fact import NodeFacts
from muster.model.frozen import dataclass
from muster.model.plan import Step, StepKind, WaitingOn
from muster.model.policy import Pool
from muster.planner.classes import node_class, unknown_facts
from muster.planner.standing import No, Way, domain_of, held, image_booted, stack_is, stratum
from muster.ports import PackageManager

HOLDS = "holds:"
"""Begins a line of `Plan.because` on what a step holds."""


@dataclass(frozen=True, slots=True)
class Holder:
    """Judges the one node whose driver is to be held. `also` are lines on what is held besides its packages."""

    pools: Mapping[str, Pool]
    managers: Sequence[PackageManager]
    also: tuple[str, ...]

    def __call__(self, facts: NodeFacts, pool: str) -> No | Way:
        refused = held(facts) or image_booted(facts)
        if refused is not None:
            return refused
        kind = node_class(facts, self.managers)
        if kind is None or not kind.packages:
            why = ", ".join(unknown_facts(facts)) or "no installed package carries its driver"
            return No(WaitingOn.UNKNOWN_HEALTH if kind is None else WaitingOn.NO_SOLUTION, f"nothing to hold: {why}")
        broken = next(manager for manager in self.managers if manager.name == kind.manager).broken(facts)
        if broken:
            return No(
                WaitingOn.OWNED_BY_HUMAN, f"has half-installed packages: {', '.join(broken)}; muster nodes repair"
            )
        seen = {path: text for path in _STACK if (text := facts.text(path)) is not None}
        if len(seen) < len(_STACK) or len({seen[path] for path in _STACK[:3]}) > 1:
            return No(WaitingOn.OWNED_BY_HUMAN, "is not whole on one driver, and that is not held: muster nodes repair")
        stack = stack_is(seen, kind.packages)
        step = Step(
            from_driver=kind.driver,
            to_driver=kind.driver,
            flavour=kind.flavour,
            manager=kind.manager,
            packages=kind.packages,
            back=kind.packages,
            restart="reload",
            expects=stack,
            done_when=stack,
            kind=StepKind.HOLD,
        )
        names = f"{HOLDS} {', '.join(pin.name for pin in kind.packages)} at {kind.packages[0].version}"
        because = (
            names,
            *(f"{HOLDS} {line}" for line in self.also),
            f"{HOLDS} the node stays in service; no package changes",
        )
        return Way(step, stratum(facts, kind), 0, domain_of(facts), because)


_STACK = (
    "module.nvidia.loaded_version", "module.nvidia.disk_version", "library.libcuda.version", "module.nvidia.flavour",
)  # fmt: skip
