"""Questions about drivers and kernels: points that were reported, never a range between them. Pure.

A kernel's number tells what builds only for upstream kernels: a distribution's kernel 5.14 carries interfaces of much later ones, so of
those nothing is answered but what is recorded for exactly that release (limit `kernel-enterprise`).
"""

import re

from muster.knowledge.claims import Claim
from muster.knowledge.records import KernelCeiling, KernelFailure
from muster.knowledge.schema import KnowledgeBase
from muster.model.frozen import dataclass
from muster.model.ranges import parse_ranges
from muster.model.versions.driver import DriverVersion

_NUMBERS = re.compile(r"[0-9]+(?:\.[0-9]+)*", re.ASCII)
# Kernels whose makers carry interfaces of newer ones under an older number: RHEL and its rebuilds, Oracle, Amazon, SUSE, Azure Linux.
_ENTERPRISE = re.compile(r"\.(el[0-9]+|amzn[0-9]+|azl[0-9]+|cm[0-9]+)|-default$|\.ky[0-9]+|uek", re.ASCII)


def is_enterprise(kernel: str) -> bool:
    """Whether a kernel release (`uname -r`) is one whose number does not tell its content."""
    return _ENTERPRISE.search(kernel) is not None


def kernel_failures(
    base: KnowledgeBase, kernel: str, driver: DriverVersion, flavour: str | None = None
) -> tuple[KernelFailure, ...]:
    """The recorded failures of exactly this driver's module on this kernel release (`6.17.13-1-pve`); `flavour` None asks for either."""
    return tuple(
        each
        for each in base.of(KernelFailure).values()
        if _is_on(each.kernel, kernel, exact=each.exact)
        and (each.flavour is None or flavour is None or each.flavour == flavour)
        and driver.plain in parse_ranges(each.drivers, DriverVersion)
    )


@dataclass(frozen=True, slots=True)
class KernelAnswer:
    """Whether a driver's module builds on a kernel: False and True where it was reported, None where nobody knows; and the report."""

    builds: bool | None
    claim: Claim | None


def builds_on(base: KnowledgeBase, kernel: str, driver: DriverVersion, flavour: str | None = None) -> KernelAnswer:
    """What was reported of this driver on this kernel release. A ceiling below the kernel is no answer, and neither is one above."""
    for failure in kernel_failures(base, kernel, driver, flavour):
        says = f"{driver.plain.text} does not build on {failure.kernel}: {failure.fails_with}; {failure.fixed_words}"
        return KernelAnswer(builds=False, claim=Claim(says, "kernel-failure", failure.id, failure.provenance))
    ceiling = base.of(KernelCeiling).get(driver.branch)
    if ceiling is None or is_enterprise(kernel):
        return KernelAnswer(None, None)
    claim = Claim(
        f"{ceiling.branch} builds up to {ceiling.builds_up_to}", "kernel-ceiling", ceiling.branch, ceiling.provenance
    )
    named = ceiling.kernel is not None and _is_on(ceiling.kernel, kernel, exact=False)
    if named and ceiling.drivers is not None and driver.plain in parse_ranges(ceiling.drivers, DriverVersion):
        return KernelAnswer(builds=True, claim=claim)
    return KernelAnswer(None, claim)


def ceiling_of(base: KnowledgeBase, branch: str) -> KernelCeiling | None:
    """The newest kernel on which a branch was seen to build: for people, no rule decides from it."""
    return base.of(KernelCeiling).get(branch)


def _is_on(recorded: str, kernel: str, *, exact: bool) -> bool:
    if exact:
        return kernel == recorded or kernel.startswith(f"{recorded}.")
    if is_enterprise(kernel):
        return False
    wanted, has = _numbers(recorded), _numbers(kernel)
    return has[: len(wanted)] == wanted


def _numbers(kernel: str) -> tuple[int, ...]:
    found = _NUMBERS.match(kernel)
    return tuple(int(part) for part in found[0].split(".")) if found else ()
