"""What must move with the driver where GPUs hang on NVSwitches: the fabric manager, exactly of the driver's version; IMEX and nvlsm beside it.

Without it CUDA never becomes ready on such a node, though nvidia-smi lists every GPU.
"""

import re

from muster.knowledge.query_components import component_rule, component_rules, system_claim
from muster.knowledge.records import Component, GpuSystem
from muster.model.fact import Unknown
from muster.solver.doubt import cited
from muster.solver.explain import Because, Hint, Observed, RuleSays
from muster.solver.hints import LOOK_AGAIN, REFRESH_LISTS
from muster.solver.problem import Gpu, Judgement, NodeClass, Question, Refusal, Rule, Switches
from muster.solver.rules.packages import carries

BOARD_GPUS = 8
"""GPUs of a board with NVSwitches (HGX, DGX); the products are also sold on boards of four without any."""

NO_FABRIC = ("N/A", "Not Supported")
IN_FABRIC = ("Completed", "In Progress")
WITHOUT_SWITCHES = frozenset({"PCIE", "FHHL", "NVL", "SXM2", "DGXS", "GRID"})
"""Words of product names: cards for PCIe slots, boards of the V100 whose GPUs are wired to each other (DGX-1), workstations, parts of
a GPU that a host lends out."""

SPEAKS_FROM_GENERATION = 3
"""From this NVSwitch generation on (Hopper) the GPUs themselves say whether they are in a fabric."""


ON_THE_BUS_TO_GENERATION = 3
"""Up to this NVSwitch generation the switches are PCI devices of the node; later ones are seen through InfiniBand."""


def system(question: Question) -> tuple[Gpu, GpuSystem] | None:
    """The kind of machine with NVSwitches that this node is taken to be, by which of its GPUs; None where it is none.

    The same GPUs are sold on boards without a switch, so what the node shows decides.
    """
    switches = question.kind.switches
    for gpu in question.gpus:
        if not WITHOUT_SWITCHES.isdisjoint(re.findall(r"[A-Z0-9]+", gpu.name.upper())):
            continue
        for each in gpu.systems:
            if _hangs_on(switches, each.generation):
                return gpu, each
    return None


def _hangs_on(switches: Switches, generation: int | None) -> bool:
    """Whether the node is such a machine: by what its GPUs say, by the switches on its bus, else by the number of its GPUs."""
    speaks = generation is None or generation >= SPEAKS_FROM_GENERATION
    if switches.state in IN_FABRIC:
        return True
    if (speaks and switches.state in NO_FABRIC) or generation is None:
        return False
    if isinstance(switches.devices, int) and generation <= ON_THE_BUS_TO_GENERATION:
        return switches.devices > 0
    return isinstance(switches.gpus, Unknown) or switches.gpus >= BOARD_GPUS


def switched(question: Question) -> Gpu | None:
    """The kind of GPU by which this node is taken to hang on NVSwitches; None where it does not."""
    found = system(question)
    return None if found is None else found[0]


def moves(kind: NodeClass) -> bool:
    """Whether a package of the fabric manager moves with the driver."""
    return any("fabricmanager" in pin.name for pin in kind.packages)


def _manager(question: Question) -> Judgement:
    """On a node with NVSwitches the fabric manager moves with the driver, or the fabric is managed from elsewhere."""
    found, kind = system(question), question.kind
    if found is None or Component.FABRIC_MANAGER not in found[1].components:
        return ()
    gpu, claim = found[0], component_rule(question.known, Component.FABRIC_MANAGER, question.candidate.branch)
    if claim is None:
        return ()
    says = cited("fabric-manager-is-the-drivers", claim)
    if moves(kind):
        return _not_offered(question, gpu, says) or (says,)
    switches = kind.switches
    seen = (gpu.seen, Observed("gpu.count", _text(switches.gpus)))
    if isinstance(switches.manager, Unknown):
        because = Because(
            "whether a fabric manager is installed is unknown",
            (*seen, Observed("fabric_manager.present", switches.manager.why), says),
        )
        return Refusal(because, (LOOK_AGAIN,), unknown=True)
    if switches.manager:
        because = Because(
            f"its fabric manager {switches.manager} comes from no package that moves with the driver",
            (*seen, Observed("fabric_manager.version", switches.manager), says),
        )
        return Refusal(because, (Hint("install the package nvidia-fabricmanager of the driver's version"),))
    if switches.state == "Completed":
        return (
            RuleSays(
                "fabric-managed-elsewhere", "no fabric manager is installed here, and the fabric is complete: another machine manages it",
                claim.source, ask=f"whoever runs the host must bring its fabric manager to {question.candidate.driver.plain.text}",
            ),
        )  # fmt: skip
    because = Because(
        f"no fabric manager for {question.candidate.driver.plain.text}: none is installed, and CUDA would not start",
        (*seen, Observed("fabric_manager.present", "false"), *_state(switches), says),
    )
    return Refusal(
        because, (Hint(f"install nvidia-fabricmanager {question.candidate.driver.plain.text}, and enable it"),)
    )


def _not_offered(question: Question, gpu: Gpu, says: RuleSays) -> Refusal | None:
    """The refusal where the package lists have the driver, and not its fabric manager."""
    offers, driver = question.kind.offers, question.candidate.driver
    for version, missing in () if isinstance(offers, Unknown) else offers.partial:
        lacking = [name for name in missing if "fabricmanager" in name]
        if lacking and carries(version, driver):
            seen = Observed(f"package[{lacking[0]}].offered", f"not {version}")
            because = Because(
                f"no fabric manager for {driver.text} in the node's repository, and without it CUDA would not start",
                (gpu.seen, Observed("gpu.count", _text(question.kind.switches.gpus)), seen, says),
            )
            return Refusal(because, (REFRESH_LISTS, Hint(f"or add {lacking[0]} {version} to the repository")))
    return None


def _state(switches: Switches) -> tuple[Observed, ...]:
    return (Observed("gpu[*].fabric.state", switches.state),) if switches.state else ()


def _beside(question: Question) -> Judgement:
    """nvlsm and IMEX are there where the machine needs them. What rests on memory warns; the rest refuses."""
    found = system(question)
    if found is None:
        return ()
    gpu, machine = found
    said: list[RuleSays] = []
    for component in (Component.NVLSM, Component.IMEX):
        claim = system_claim(machine, component)
        if claim is None or _there(question.kind, component):
            continue
        says = cited("services-beside-the-driver", claim)
        services = question.kind.switches.services
        if not claim.can_decide or question.kind.switches.state == "Completed":
            # A fabric that is complete without it is worth more than the record.
            words = f"{component.value} is not seen on the node, and {machine.boards} need it"
            said.append(
                RuleSays(says.rule, words, says.source, says.doubt, ask="whoever runs the fabric knows where it runs")
            )
            continue
        told = services.why if isinstance(services, Unknown) else ", ".join(services) or "none"
        because = Because(
            f"{component.value} is not on the node, and its fabric would not come up",
            (
                gpu.seen,
                Observed("gpu.count", _text(question.kind.switches.gpus)),
                Observed("service.present", told),
                says,
            ),
        )
        package = next(
            (rule.packages[0] for rule in component_rules(question.known, component) if rule.packages), component.value
        )
        return Refusal(because, (Hint(f"install {package}, and enable it"),), unknown=isinstance(services, Unknown))
    return tuple(said)


def _there(kind: NodeClass, component: Component) -> bool:
    """Whether a component is on the node: as a package that moves with the driver, or as a unit."""
    services = () if isinstance(kind.switches.services, Unknown) else kind.switches.services
    return any(component.value in name for name in (*services, *(pin.name for pin in kind.packages)))


def _text(value: int | Unknown) -> str:
    return value.why if isinstance(value, Unknown) else str(value)


RULES = (Rule("fabric-manager-is-the-drivers", _manager), Rule("services-beside-the-driver", _beside))
