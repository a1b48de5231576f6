"""Scenarios of the solver as data: a tiny universe, what is seen on a node, what its pool wants, and what must come of it.

A file of tests/scenarios/solver holds:

releases   the only driver builds there are (default: those of the packaged knowledge base)
node       facts that differ from GOOD, or from the `like` that it names; a fact without a value is `{unknown: why}`
pool       a pool of a policy: `driver`, and `cuda` where its users need some
expect     `driver`, `restart` and, where there are any, `doubts`, `asks` and `warns`; or `refused`, `by`, `hints` and `unknown`

The node goes through the production code from facts to class, the pool through the production reader of policies.
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path

import yaml

from muster.backends.packages.apt import BACKEND as APT
from muster.knowledge.loader import load
from muster.knowledge.schema import KnowledgeBase
from muster.model.fact import Fact, FactValue, NodeFacts, Unknown
from muster.model.policy import DriverWish, ReleaseLine, WantBranch, WantNewest, WantVersion
from muster.model.stack import PackagePin
from muster.model.versions.driver import DriverVersion
from muster.planner.classes import node_class
from muster.solver.problem import Answer, Demand, NodeClass, Offers, Solution, Switches
from muster.solver.words import sentence
from tests.support.values import T0

FOLDER = Path(__file__).parents[1] / "scenarios" / "solver"
POOL = "train"
DRIVER = "570.195.03"
KERNEL = "6.1.0-18-amd64"

SPEAKING = ("branch-drives-architecture", "module-flavour", "driver-is-known", "cuda-of-branch")
"""Rules that speak for every admitted driver."""


def good(**shape: str) -> Mapping[str, FactValue]:
    """A node that nothing speaks against: eight H100 PCIe, Debian 12, open modules by DKMS, package lists that offer every build."""
    driver, product = shape.get("driver", DRIVER), shape.get("product", "NVIDIA H100 PCIe")
    names = shape.get("packages", "libcuda1 nvidia-driver nvidia-kernel-open-dkms").split()
    return {
        "gpu.product": product, "gpu.count": 8, "gpu.fabric_state": shape.get("fabric", "N/A"), "gpu.confidential": False,
        "kernel.running": KERNEL, "arch": shape.get("arch", "x86_64"), "os.id": "debian", "os.version": "12", "root_fs.kind": "ext4",
        "module.nvidia.flavour": shape.get("flavour", "open"), "module.nvidia.disk_version": driver,
        "module.nvidia.loaded_version": shape.get("loaded", driver), "library.libcuda.version": driver,
        "kernel.bootable": (KERNEL,), f"kernel[{KERNEL}].headers": True, f"kernel[{KERNEL}].nvidia.signer": "none",
        "secure_boot.enabled": False, "secure_boot.enrolled": (), "runfile.installed": False,
        "fabric_manager.present": False, "service.present": (),
        **{f"package[{name}].version": f"{driver}-1" for name in names},
        **{f"package[{name}].state": "installed" for name in names},
    }  # fmt: skip


SHAPE = ("driver", "product", "packages", "arch", "flavour", "loaded", "fabric")


@dataclass(frozen=True)
class Scenario:
    """One file of tests/scenarios/solver."""

    kind: NodeClass
    demand: Demand
    base: KnowledgeBase
    expect: Mapping[str, object]


def kind(**given: str) -> NodeClass:
    """A class of good nodes, some of it changed."""
    driver = given.get("driver", DRIVER)
    return NodeClass(
        product=given.get("product", "NVIDIA H100 PCIe"), kernel=KERNEL, arch=given.get("arch", "x86_64"), os="debian 12",
        flavour=given.get("flavour", "open"), driver=driver, loaded=given.get("loaded", driver), manager="apt",
        packages=tuple(PackagePin(name, f"{driver}-1") for name in given.get("packages", "nvidia-driver").split()),
        root="", kernels=(), secure_boot=False, enrolled=(), runfile=False, offers=Unknown("not asked"),
        switches=Switches(8, given.get("fabric", "N/A"), "", ()), confidential=False,
    )  # fmt: skip


def changed(node: NodeClass, **parts: object) -> NodeClass:
    """The class with some of its parts changed."""
    return replace(node, **parts)  # type: ignore[arg-type]


def demand(**given: str) -> Demand:
    wish: DriverWish
    if "want" in given:
        wish = WantVersion(DriverVersion.parse(given["want"]))
    elif "branch" in given:
        wish = WantBranch(given["branch"])
    else:
        wish = WantNewest(ReleaseLine(given["newest"]))
    return Demand(POOL, wish, given.get("flavour"), given.get("cuda"))


@cache
def scenarios() -> Mapping[str, Scenario]:
    return {path.stem: scenario(path) for path in sorted(FOLDER.glob("*.yaml"))}


def scenario(path: Path) -> Scenario:
    """One scenario. Texts only, as everywhere: 580.10 is no number."""
    body = yaml.load(path.read_text(encoding="utf-8"), yaml.BaseLoader)
    extra = set(body) - {"releases", "node", "offers", "pool", "expect"}
    assert not extra, f"{path.name}: {extra}"
    base = universe(body.get("releases"))
    node = body.get("node") or {}
    seen = {path: value(text) for path, text in node.items() if path not in SHAPE}
    facts = {
        **good(**{name: node[name] for name in SHAPE if name in node}),
        **offering(body.get("offers"), base),
        **seen,
    }
    looked = NodeFacts("n1", T0, {path: Fact(path, each, "test", T0) for path, each in facts.items()})
    found = node_class(looked, (APT,))
    assert found is not None, path.name
    wanted = dict(body["pool"])
    return Scenario(found, demand(**wanted.pop("driver"), **wanted), base, body["expect"])


def universe(builds: list[str] | None) -> KnowledgeBase:
    """The packaged base, or what is left of it when there are only these builds."""
    if builds is None:
        return load()
    kept = [DriverVersion.parse(text) for text in builds]
    missing = [version.text for version in kept if version not in load().releases]
    assert not missing, missing
    return replace(load(), releases={version: load().releases[version] for version in sorted(kept)})


def offering(offers: Mapping[str, list[str]] | None, base: KnowledgeBase) -> Mapping[str, FactValue]:
    """Package lists: by default every build of the universe whole; else the versions named, each with the packages that lack it."""
    if offers is None:
        return {"repository.lists": True, **{f"repository[{version.text}-1].missing": () for version in base.releases}}
    return {"repository.lists": True, **{f"repository[{v}].missing": tuple(names) for v, names in offers.items()}}


def value(text: object) -> FactValue:
    """A fact as the scenarios write it."""
    if isinstance(text, Mapping):
        return Unknown(str(text["unknown"]))
    if isinstance(text, list):
        return tuple(str(each) for each in text)
    word = str(text)
    if word in ("true", "false"):
        return word == "true"
    return int(word) if word.isdigit() else word


def outcome(answer: Answer) -> Mapping[str, object]:
    """An answer as the scenarios write it."""
    if isinstance(answer, Solution):
        said: dict[str, object] = {"driver": answer.chosen.driver.text}
        said["restart"] = "reboot" if answer.reboot else "reload"
        told = {
            "doubts": [sentence(rule) for rule in answer.because if rule.doubt],
            "asks": [sentence(rule) for rule in answer.because if rule.ask],
            "warns": [sentence(r) for r in answer.because if r.rule not in SPEAKING and not r.doubt and not r.ask],
        }
        return said | {key: each for key, each in told.items() if each}
    no: dict[str, object] = {"refused": sentence(answer.because), "by": ", ".join(answer.rules)}
    hints = [hint.says for hint in answer.hints]
    return no | ({"hints": hints} if hints else {}) | ({"unknown": "true"} if answer.unknown else {})


__all__ = ["Offers", "Scenario", "kind", "outcome", "scenarios"]
