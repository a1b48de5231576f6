"""Fleets for the planner: nodes with facts, some of them in trouble of a kind, and the input of `propose`."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from datetime import timedelta
from types import MappingProxyType

from muster.backends.packages.apt import BACKEND as APT
from muster.knowledge.loader import load
from muster.model.fact import Fact, FactValue, NodeFacts, Unknown
from muster.model.node import Node
from muster.model.plan import UNTOLD, Bound, NodePlan, Plan, PoolLimits, Span, WaitingOn
from muster.model.policy import (
    DriverPolicy,
    HostsSource,
    Match,
    MaxUnavailable,
    Policy,
    Pool,
    Rollout,
    Tier,
    WantVersion,
)
from muster.model.quantities import Amount, Window
from muster.model.versions.driver import DriverVersion
from muster.planner.pools import placed
from muster.planner.propose import PlanInput
from muster.planner.stages import StageWish, lay_out
from muster.planner.units import Unit
from muster.planner.work import NO_SCHEDULER, Work, stamp
from muster.solver.problem import Answer, Demand, NodeClass
from muster.solver.search import solve
from tests.support.values import T0, plan

OLD, NEW = "570.195.03", "580.126.20"
PACKAGES = ("libcuda1", "nvidia-driver", "nvidia-kernel-open-dkms")

GOOD: Mapping[str, FactValue] = MappingProxyType(
    {
        "gpu.product": "NVIDIA H100 PCIe", "gpu.count": 8, "pci.gpus": 8, "settings.mig": "Disabled", "settings.mig_devices": "0",
        "settings.ecc": "Enabled", "settings.persistence": "Enabled", "settings.compute_mode": "Default", "settings.power_limit": "350.00 W",
        "settings.clocks": "1755 MHz", "module.nvidia.loaded": True, "module.nvidia.options_differ": (), "initramfs.images": (),
        "cuda.toolkits": (), "gpu.vbios": ("96.00.A5.00.01",), "gpu.nvlink_domain": "none",
        "kernel.running": "6.1.0-18-amd64", "arch": "x86_64", "os.id": "debian",
        "os.version": "12", "module.nvidia.flavour": "open", "module.nvidia.disk_version": OLD,
        "module.nvidia.loaded_version": OLD, "library.libcuda.version": OLD, "lease.held": False, "root_fs.kind": "ext4",
        "holder.pids": (), "packages.manager": "dpkg",
        "kernel.bootable": ("6.1.0-18-amd64",), "kernel.next_boot": "6.1.0-18-amd64", "kernel[6.1.0-18-amd64].headers": True,
        "dkms.present": True, f"dkms[nvidia/{OLD}/6.1.0-18-amd64/x86_64].state": "installed",
        "kernel[6.1.0-18-amd64].nvidia.on_disk": True, "kernel[6.1.0-18-amd64].nvidia.version": OLD,
        "kernel[6.1.0-18-amd64].nvidia.signer": "none", "secure_boot.enabled": False,
        "nouveau.loaded": False, "nouveau.blacklisted": True, "nouveau.on_disk": True, "nouveau.initramfs_older": False,
        "upgrades.automatic": False, "runfile.installed": False, "container.cdi_specs": (),
        "fabric_manager.present": False, "fabric_manager.version": Unknown("nv-fabricmanager is not installed"), "service.present": (),
        "transactions.logs": ("apt/history.log",), "transactions.newest": "",
        **{f"package[{name}].version": f"{OLD}-1" for name in PACKAGES},
        **{f"package[{name}].state": "installed" for name in PACKAGES},
        **{f"package[{name}].hold": True for name in PACKAGES},
    }
)  # fmt: skip
"""A node that runs OLD and could run NEW."""


def seen(
    name: str, values: Mapping[str, FactValue | None], *, age_s: int = 60, trouble: str | None = None
) -> NodeFacts:
    """Facts of a good node with some values changed; None takes one away."""
    all_of = {path: value for path, value in {**GOOD, **values}.items() if value is not None}
    then = T0 - timedelta(seconds=age_s)
    if "clock.utc_s" not in values:
        all_of["clock.utc_s"] = int(then.timestamp())
    facts = {path: Fact(path, value, "test", then) for path, value in all_of.items()}
    return NodeFacts(name, then, facts, None if trouble is None else Unknown(trouble))


def carrying(driver: str) -> Mapping[str, FactValue]:
    """What changes on a node when its whole stack is `driver`."""
    return {
        "module.nvidia.disk_version": driver, "module.nvidia.loaded_version": driver, "library.libcuda.version": driver,
        "kernel[6.1.0-18-amd64].nvidia.version": driver,
        **{f"package[{name}].version": f"{driver}-1" for name in PACKAGES},
    }  # fmt: skip


def policy(*pools: Pool, **rollout: object) -> Policy:
    return Policy("lab", (HostsSource("hosts"),), pools or (pool("train"), pool("dev", tier=Tier.DEVELOPMENT)),
                  rollout=replace(Rollout(canary_soak_s=5, later_soak_s=3), **rollout), revision="p1")  # type: ignore[arg-type]  # fmt: skip


def pool(name: str, *, tier: Tier = Tier.STANDARD, want: str = NEW, away: str = "2", **more: object) -> Pool:
    given = {
        "match": (Match("label.pool", (name, "both")),), "tier": tier, "driver": DriverPolicy(WantVersion(DriverVersion.parse(want))),
        "max_unavailable": MaxUnavailable(Amount.parse(away)),
    }  # fmt: skip
    return Pool(name, **{**given, **more})  # type: ignore[arg-type]


def node(name: str, in_pool: str = "train") -> Node:
    return Node(name, name, None, None, {"pool": in_pool}, "hosts:1")


def demand_of(each: Pool) -> Demand:
    assert each.driver is not None
    flavour = None if each.driver.flavour is None else each.driver.flavour.value
    return Demand(each.name, each.driver.wish, flavour, None if each.cuda is None else str(each.cuda))


def answer(kind: NodeClass, each: Pool) -> Answer:
    return solve(kind, demand_of(each), load())


def given(
    nodes: Sequence[Node],
    facts: Mapping[str, NodeFacts],
    wanted: Policy | None = None,
    *,
    order: Sequence[str] | None = None,
    only_pool: str | None = None,
    work: Work = NO_SCHEDULER,
    windows: Mapping[str, tuple[Span, ...]] | None = None,
    parent: str | None = None,
) -> PlanInput:
    wanted = wanted or policy()
    return PlanInput(
        policy=wanted,
        nodes=tuple(nodes),
        facts=facts,
        placings=placed(nodes, facts, wanted),
        managers=(APT,),
        solve=answer,
        order=tuple(n.name for n in nodes) if order is None else tuple(order),
        now=T0,
        knowledge_revision="k1",
        only_pools=(only_pool,) if only_pool else (),
        work=work,
        windows=windows or {},
        parent=parent,
    )


Trouble = tuple[Mapping[str, FactValue | None], WaitingOn | None, str]
LOST = Unknown("nvidia-smi: no answer before its deadline")

KINDS: Mapping[str, Trouble] = MappingProxyType(
    {
        "good": ({}, None, ""),
        "busy": ({"holder.pids": ("77",)}, None, ""),
        "perhaps busy": ({"holder.pids": LOST}, None, ""),
        "only loads what is on disk": ({**carrying(NEW), "module.nvidia.loaded_version": OLD}, None, ""),
        "library of another version": ({"library.libcuda.version": NEW, "package[libcuda1].version": f"{NEW}-1"}, None, ""),
        "as wanted": (carrying(NEW), WaitingOn.NOTHING_TO_DO, "already runs 580.126.20"),
        "GPU unknown": ({"gpu.product": LOST}, WaitingOn.UNKNOWN_HEALTH, r"gpu\.product \(nvidia-smi: no answer"),
        "kernel not collected": ({"kernel.running": None}, WaitingOn.UNKNOWN_HEALTH, r"kernel\.running \(not collected\)"),
        "loaded unknown": ({"module.nvidia.loaded_version": LOST}, WaitingOn.UNKNOWN_HEALTH, "what it runs now is unknown"),
        "library unknown": ({"library.libcuda.version": LOST}, WaitingOn.UNKNOWN_HEALTH, "library.libcuda.version"),
        "packages unread": (
            {**{path: None for path in GOOD if path.startswith("package[")}, "package[*].version": LOST, "package[*].state": LOST},
            WaitingOn.UNKNOWN_HEALTH, "the installed packages",
        ),
        "held": ({"lease.held": True, "lease.holder": "ops@a"}, WaitingOn.OWNED_BY_HUMAN, "is held by ops@a for no rollout"),
        "held by nobody knows whom": ({"lease.held": True}, WaitingOn.OWNED_BY_HUMAN, "is held by somebody"),
        "perhaps held": ({"lease.held": LOST}, WaitingOn.UNKNOWN_HEALTH, "whether somebody holds it is unknown"),
        "image-booted": ({"root_fs.kind": "overlay"}, WaitingOn.NO_SOLUTION, r"boots from an image \(root on overlay\)"),
        "perhaps image-booted": ({"root_fs.kind": LOST}, WaitingOn.UNKNOWN_HEALTH, "whether it boots from an image is unknown"),
        "half-installed": (
            {"package[nvidia-driver].state": "half-configured"}, WaitingOn.OWNED_BY_HUMAN, "half-installed: nvidia-driver",
        ),
        "installed otherwise": (
            {f"package[{name}].version": "1.0-1" for name in PACKAGES}, WaitingOn.NO_SOLUTION, "no installed package carries 570",
        ),
        "GPU that the driver dropped": (
            {"gpu.product": "NVIDIA B200", "module.nvidia.flavour": "proprietary"}, WaitingOn.NO_SOLUTION, "no proprietary modules",
        ),
        "unheard of": ({"gpu.product": "NVIDIA Z9000"}, WaitingOn.NO_SOLUTION, "is not known"),
        "stale": ({}, WaitingOn.STALE_FACTS, "its facts are of 2026-03-01 06:59 UTC"),
        "never collected": ({}, WaitingOn.STALE_FACTS, "was never collected"),
        "unreachable": ({}, WaitingOn.STALE_FACTS, "could not be looked at: timeout"),
        "in no pool": ({}, WaitingOn.OWNED_BY_HUMAN, "is in no pool: seen, never changed"),
        "in two pools": ({}, WaitingOn.OWNED_BY_HUMAN, "is in 2 pools: train, dev"),
    }
)  # fmt: skip
"""Kinds of nodes: what is seen there, and why such a node is not planned (None: it is)."""


def fleet(kinds: Sequence[str]) -> tuple[tuple[Node, ...], Mapping[str, NodeFacts]]:
    """One node of each of the kinds, in two pools by turns."""
    nodes, facts = [], {}
    for at, kind in enumerate(kinds):
        name = f"n{at:02}"
        where = {"in no pool": "nowhere", "in two pools": "both"}.get(kind, ("train", "dev")[at % 2])
        nodes.append(node(name, where))
        if kind != "never collected":
            facts[name] = seen(
                name,
                KINDS[kind][0],
                age_s=3601 if kind == "stale" else 60,
                trouble="timeout" if kind == "unreachable" else None,
            )
    return tuple(nodes), facts


def unit(name: str, **more: object) -> Unit:
    """A unit of one idle node."""
    given = {"nodes": (name,), "stratum": "s", "tier": 1, "free_s": 0, "chance": 0}
    return Unit(name, **{**given, **more})  # type: ignore[arg-type]


def staged(
    units: Sequence[Unit],
    wishes: Sequence[StageWish],
    limits: Mapping[str, int],
    pools: Mapping[str, str],
    *,
    control: Amount | None = None,
    racks: Mapping[str, int] | None = None,
    windows: Mapping[str, tuple[Span, ...]] | None = None,
) -> Plan:
    """A plan over units, with a limit for each pool, and for each rack that `racks` names."""
    laid = lay_out(units, wishes, control)
    step = plan().nodes[0].step
    by_node = {name: each for each in units for name in each.nodes}
    names = [name for stage in laid.stages for name in stage.nodes]
    sizes = {name: list(pools.values()).count(name) for name in limits}

    def part(name: str) -> NodePlan:
        each = by_node[name]
        domain = each.name if len(each.nodes) > 1 else ""
        free_at = "" if each.idle else UNTOLD if each.free_s is None else stamp(T0 + timedelta(seconds=each.free_s))
        return NodePlan(
            name, pools[name], step, each.stratum, next(iter(each.racks), ""), next(iter(each.zones), ""), domain=domain, jobs=each.jobs,
            free_at=free_at,
        )  # fmt: skip

    bounds = tuple(Bound("rack", rack, 10**6, most) for rack, most in (racks or {}).items())
    tiers = ("development", "standard", "critical")
    tier = {pools[name]: tiers[by_node[name].tier] for name in names}
    return replace(
        plan(),
        stages=laid.stages,
        nodes=tuple(part(name) for name in names),
        pools=tuple(
            PoolLimits(
                name, sizes[name], limit, "wait", 3600, tier.get(name, "standard"), (windows or {}).get(name, ())
            )
            for name, limit in limits.items()
        ),
        left_out=(),
        control=control.basis_points if control else 0,
        bounds=bounds,
        strata=laid.strata,
    )


WINDOW = Window((5,), 120, 480, "UTC")
