"""Scenarios of the solver as data: a class of nodes, a demand, and what must come of it."""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import yaml

from muster.model.policy import DriverWish, ReleaseLine, WantBranch, WantNewest, WantVersion
from muster.model.stack import PackagePin
from muster.model.versions.driver import DriverVersion
from muster.solver.problem import Answer, Demand, NodeClass, Solution
from muster.solver.words import sentence

FOLDER = Path(__file__).parents[1] / "scenarios" / "solver"
POOL = "train"


@dataclass(frozen=True)
class Scenario:
    """One file of tests/scenarios/solver."""

    kind: NodeClass
    demand: Demand
    expect: Mapping[str, object]


def kind(**given: str) -> NodeClass:
    driver = given.get("driver", "570.195.03")
    return NodeClass(
        product=given.get("product", "NVIDIA H100 PCIe"),
        kernel="6.1.0-18-amd64",
        arch=given.get("arch", "x86_64"),
        os="debian 12",
        flavour=given.get("flavour", "open"),
        driver=driver,
        loaded=given.get("loaded", driver),
        manager="apt",
        packages=tuple(PackagePin(name, f"{driver}-1") for name in given.get("packages", "nvidia-driver").split()),
    )


def demand(**given: str) -> Demand:
    wish: DriverWish
    if "want" in given:
        wish = WantVersion(DriverVersion.parse(given["want"]))
    elif "branch" in given:
        wish = WantBranch(given["branch"])
    else:
        wish = WantNewest(ReleaseLine(given["newest"]))
    return Demand(POOL, wish, given.get("flavour"), given.get("cuda"))


def scenarios() -> Mapping[str, Scenario]:
    found = {}
    for path in sorted(FOLDER.glob("*.yaml")):
        # Texts only, as everywhere: 580.10 is no number.
        body = yaml.load(path.read_text(encoding="utf-8"), yaml.BaseLoader)
        found[path.stem] = Scenario(kind(**body["node"]), demand(**body["demand"]), body.get("expect", {}))
    return found


def outcome(answer: Answer) -> Mapping[str, object]:
    """An answer as the scenarios write it."""
    if isinstance(answer, Solution):
        said: dict[str, object] = {"driver": answer.chosen.driver.text, "flavour": answer.chosen.flavour}
        said["restart"] = "reboot" if answer.reboot else "reload"
        doubts = [sentence(rule) for rule in answer.because if rule.doubt]
        return said | ({"doubts": doubts} if doubts else {})
    return {"refused": sentence(answer.because), "hints": [hint.says for hint in answer.hints]}
