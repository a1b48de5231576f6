"""What must move with the driver where GPUs hang on NVSwitches: the fabric manager, exactly of the driver's version; IMEX and nvlsm beside it.

Without it CUDA never becomes ready on such a node, though nvidia-smi lists every GPU.
"""

import re

from muster.knowledge.schema import Confidence
from muster.model.fact import Unknown
from muster.solver.doubt import doubt
from muster.solver.explain import Because, Hint, Observed, RuleSays
from muster.solver.hints import LOOK_AGAIN, REFRESH_LISTS
from muster.solver.problem import Gpu, Judgement, NodeClass, Question, Refusal, Rule, Switches
from muster.solver.rules.packages import carries

BOARD_GPUS = 8
"""GPUs of a board with NVSwitches (HGX, DGX); the products are also sold on boards of four without any."""

NO_FABRIC = ("N/A", "Not Supported")
_GENERATION = re.compile(r"NVSwitch gen (\d)")
_SOURCE = "https://docs.nvidia.com/datacenter/tesla/tesla-release-notes-535-216-03"


def generation(gpu: Gpu) -> int | None:
    """The NVSwitch generation of the boards this product is sold on; None where it is not known to be on any."""
    product = None if gpu.known is None else gpu.known.product
    found = _GENERATION.search(product.nvswitch or "") if product is not None else None
    return int(found[1]) if found else None


def switched(question: Question) -> Gpu | None:
    """The kind of GPU by which this node is taken to hang on NVSwitches; None where it does not."""
    switches = question.kind.switches
    for gpu in question.gpus:
        number = generation(gpu)
        if number is None or (switches.state in NO_FABRIC and number >= 3):
            continue  # from Hopper on the GPUs themselves say whether they are in a fabric
        if (
            isinstance(switches.gpus, Unknown)
            or switches.gpus >= BOARD_GPUS
            or switches.state in ("Completed", "In Progress")
        ):
            return gpu
    return None


def moves(kind: NodeClass) -> bool:
    """Whether a package of the fabric manager moves with the driver."""
    return any("fabricmanager" in pin.name for pin in kind.packages)


def _manager(question: Question) -> Judgement:
    """On a node with NVSwitches the fabric manager moves with the driver, or the fabric is managed from elsewhere."""
    gpu, kind = switched(question), question.kind
    if gpu is None:
        return ()
    says = RuleSays(
        "fabric-manager-is-the-drivers", "behind NVSwitches CUDA starts only with a fabric manager of the driver's version", _SOURCE
    )  # fmt: skip
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
                _SOURCE, ask=f"whoever runs the host must bring its fabric manager to {question.candidate.driver.plain.text}",
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


def _subnet_manager(question: Question) -> Judgement:
    """From the fourth generation of NVSwitches on nvlsm runs beside the fabric manager. That rests on memory: it warns, and refuses nothing."""
    gpu, services = switched(question), question.kind.switches.services
    if gpu is None or (generation(gpu) or 0) < 4 or isinstance(services, Unknown) or "nvlsm" in services:
        return ()
    if not moves(question.kind):
        return ()
    assert gpu.known is not None
    name = gpu.known.architecture.name
    says = f"boards of {name} with NVSwitches need nvlsm beside the fabric manager, and it is not there"
    return (RuleSays("nvlsm-beside-fabric-manager", says, "", doubt((says, Confidence.MEMORY))),)


def _text(value: int | Unknown) -> str:
    return value.why if isinstance(value, Unknown) else str(value)


RULES = (Rule("fabric-manager-is-the-drivers", _manager), Rule("nvlsm-beside-fabric-manager", _subnet_manager))
