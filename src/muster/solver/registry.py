"""The rules by which the solver decides, in the order in which a refusal is told: the most basic first. One file for each family."""

from muster.solver.problem import Rule
from muster.solver.rules import (
    architecture,
    cuda,
    environment,
    fabric,
    flavour,
    image,
    installed,
    issues,
    kernel,
    known,
    limits,
    packages,
)

RULES: tuple[Rule, ...] = (
    *known.RULES,
    *image.RULES,
    *architecture.RULES,
    *flavour.RULES,
    *cuda.RULES,
    *installed.RULES,
    *fabric.RULES,
    *packages.RULES,
    *kernel.RULES,
    *environment.RULES,
    *limits.RULES,
    *issues.RULES,
)
