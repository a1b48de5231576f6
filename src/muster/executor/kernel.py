"""The texts that a step with a new kernel adds to its phases; each is empty for a step without. Pure.

The order is what makes it safe: the old kernel is made the default before anything is installed, the new one is booted once, and it becomes the
default when the node returns validated. On the way back its packages go last, when the old kernel runs again: a running kernel is not removed.
"""

from muster.model.plan import Step
from muster.node import boot
from muster.ports import PackageManager


def asked(step: Step) -> str:
    """For preflight."""
    return "" if step.kernel is None else boot.before(step.kernel.from_kernel, step.kernel.to_kernel)


def held(step: Step, keep: str) -> str:
    """Before the packages are changed."""
    return "" if step.kernel is None else boot.hold(step.kernel.from_kernel, keep)


def chosen(step: Step, *, back: bool) -> str:
    """Immediately before the restart; on the way back the default is the old kernel already."""
    return "" if step.kernel is None or back else boot.once(step.kernel.to_kernel)


def of(step: Step, *, back: bool) -> str:
    """The kernel that a restart is to come up with; empty: the one that runs."""
    if step.kernel is None:
        return ""
    return step.kernel.from_kernel if back else step.kernel.to_kernel


def settled(step: Step, keep: str, manager: PackageManager, *, back: bool) -> str:
    """At the return of a validated node."""
    if step.kernel is None:
        return ""
    settle = boot.settle(of(step, back=back), keep)
    # In a shell of its own: a package manager's text ends by itself.
    return f"(\n{manager.restore(step.back, keep, step.incoming)}) || exit $?\n{settle}" if back else settle


def packages(step: Step) -> tuple[str, ...]:
    """The names of the packages of the new kernel."""
    return () if step.kernel is None else tuple(pin.name for pin in step.kernel.packages)
