"""Questions about what must move with the driver: fabric manager, nvlsm, IMEX and their like; and which machines need which. Pure."""

from muster.knowledge.claims import Claim
from muster.knowledge.query import branch_number, family_of, identify
from muster.knowledge.records import Component, ComponentRule, GpuSystem, PackageRename, Tie, Transition
from muster.knowledge.schema import KnowledgeBase


def component_rules(base: KnowledgeBase, component: Component) -> tuple[ComponentRule, ...]:
    """What is known of a component, in the order of the file."""
    return tuple(rule for rule in base.of(ComponentRule).values() if rule.component is component)


def component_rule(base: KnowledgeBase, component: Component, branch: str) -> Claim | None:
    """The first rule that ties the component's version to the driver's on this branch; None where none is known."""
    for rule in component_rules(base, component):
        begun = rule.from_branch is None or branch_number(branch) >= branch_number(rule.from_branch)
        if rule.tie is not Tie.NONE and begun:
            return Claim(rule.says, "component-rule", rule.id, rule.provenance)
    return None


def has_drivers_version(base: KnowledgeBase, component: Component, branch: str) -> bool:
    """Whether the component must have exactly the driver's version on this branch."""
    return any(
        rule.tie is Tie.EXACT and (rule.from_branch is None or branch_number(branch) >= branch_number(rule.from_branch))
        for rule in component_rules(base, component)
    )


def systems_of(base: KnowledgeBase, product: str) -> tuple[GpuSystem, ...]:
    """The kinds of machines with NVSwitches in which a GPU of this product name is sold; () where none is known.

    Whether a node *is* such a machine, only the node can say: the same names are sold on boards without a switch.
    """
    name = family_of(base, product)
    named = tuple(system for system in base.of(GpuSystem).values() if name in system.families)
    answer = identify(base, product)
    if answer is not None and answer.product is not None:
        # A product of exactly this name is known: without a switch on its boards it is in no such machine (an H100 PCIe).
        return named if answer.product.nvswitch is not None else ()
    return named


def system_claim(system: GpuSystem, component: Component) -> Claim | None:
    """That such a machine needs this component; None where it does not."""
    if component not in system.components:
        return None
    return Claim(f"{system.boards} need {component.value}", "gpu-system", system.id, system.provenance)


def system_of_switch(base: KnowledgeBase, pci_device: str) -> GpuSystem | None:
    """The kind of machine that has this switch among its PCI devices (`10de:22a3`); None where it is not listed."""
    wanted = pci_device.lower()
    return next((each for each in base.of(GpuSystem).values() if each.switch_pci == wanted), None)


def transitions_of(base: KnowledgeBase, package: str) -> tuple[Transition, ...]:
    """The releases in which a package only pulls another one of another branch."""
    return tuple(each for each in base.of(Transition).values() if each.package == package)


def renamed(
    base: KnowledgeBase, package: str, repository: str, distribution: str, before: str, after: str
) -> PackageRename | None:
    """What becomes of a package (`nvidia-dkms-580-open`) when a node goes from one branch to another; None where it keeps its name."""
    for each in base.of(PackageRename).values():
        crosses = branch_number(before) < branch_number(each.from_branch) <= branch_number(after)
        named = each.old.replace("{branch}", str(branch_number(before))) == package
        if crosses and named and each.repository == repository and distribution in each.distributions:
            return each
    return None
