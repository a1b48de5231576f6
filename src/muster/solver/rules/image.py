"""A node whose root does not outlive a restart is not changed: what is installed there would be gone, or half gone, after the next boot."""

from muster.model.fact import Unknown
from muster.solver.explain import Because, Hint, Observed, RuleSays
from muster.solver.problem import Judgement, Question, Refusal, Rule

IMAGE_KINDS = ("tmpfs", "overlay", "nfs", "nfs4", "squashfs", "ramfs")
"""Kinds of root file system of nodes that are booted from an image."""

_WHERE = Hint("build the driver into the image that these nodes boot")


def _outlives(question: Question) -> Judgement:
    """The root file system lies on the node's own disk."""
    root = question.kind.root
    if isinstance(root, Unknown):
        says = RuleSays(
            "root-outlives-a-restart", "what is installed on a root that is made anew is lost at the next boot", ""
        )
        seen = Observed("root_fs.kind", root.why)
        return Refusal(Because("whether it boots from an image is unknown", (seen, says)), unknown=True)
    if root not in IMAGE_KINDS:
        return ()
    says = RuleSays("root-outlives-a-restart", f"a root on {root} is made anew from an image at each boot", "")
    because = Because(
        f"it boots from an image (root on {root}): a change would be lost", (Observed("root_fs.kind", root), says)
    )
    return Refusal(because, (_WHERE,))


RULES = (Rule("root-outlives-a-restart", _outlives),)
