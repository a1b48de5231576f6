"""What the scheduler says of the site's nodes, under the site's names for them: who works there, and who took them out of service."""

import re
from collections.abc import Mapping

from muster.control.site import Site
from muster.model.job import Job, JobState, NodeState, SchedulerNode, SchedulerView
from muster.planner.work import NO_SCHEDULER, Work

OWNED = ("DRAIN", "DRAINED", "DRAINING", "FAIL", "FAILING", "MAINTENANCE", "MAINT")
"""Words beside a node's state that say that a person, or a program of the site's, took it out of service."""

_HOLDS = (JobState.RUNNING, JobState.SUSPENDED, JobState.UNKNOWN)


async def work_of(site: Site) -> Work:
    """What the scheduler says now; of no scheduler, nothing. Never raises: what is not answered is unknown, node by node."""
    view = await site.scheduler_view()
    return work_in(view, site) if view.name else NO_SCHEDULER


def work_in(view: SchedulerView, site: Site) -> Work:
    """`view` under the site's names. A node that the inventory has from the scheduler, and of which the scheduler says nothing, is unknown."""
    listed = [node.name for node in site.nodes if node.in_slurm]
    if view.trouble:
        words = f"which jobs run there and whether it is drained is unknown: {view.trouble}"
        return Work(unknown=dict.fromkeys(listed, words))
    called = site.caller()
    names = {node.name: name for node in view.nodes if (name := called(node.name)) is not None}
    told = frozenset(names.values())
    owned: dict[str, str] = {}
    unknown = {name: f"{view.name} lists it no more" for name in listed if name not in told}
    for node in view.nodes:
        name = names.get(node.name)
        if name is not None and not node.takes_jobs:
            (owned if _is_owned(node) else unknown)[name] = _words(node, view.name)
    rollouts = {name: of for node in view.nodes if (name := names.get(node.name)) in owned and (of := _rollout(node))}
    return Work(_jobs(view, names), owned, unknown, told, rollouts)


def _jobs(view: SchedulerView, names: Mapping[str, str]) -> Mapping[str, tuple[Job, ...]]:
    on: dict[str, list[Job]] = {}
    for job in view.jobs:
        if job.state in _HOLDS or "COMPLETING" in job.flags or "CONFIGURING" in job.flags:
            for node in job.nodes:
                if node in names:
                    on.setdefault(names[node], []).append(job)
    return {name: tuple(jobs) for name, jobs in on.items()}


_OURS = re.compile(r"muster (rollout-\w+):")


def _rollout(node: SchedulerNode) -> str:
    """The rollout that has drained it, by the reason; empty where a person has."""
    found = _OURS.match(node.reason)
    return found[1] if found else ""


def _is_owned(node: SchedulerNode) -> bool:
    return node.state is not NodeState.UNKNOWN and any(word in node.flags for word in OWNED)


def _words(node: SchedulerNode, scheduler: str) -> str:
    by = f" by {node.reason_by}" if node.reason_by else ""
    since = f" since {node.reason_at:%Y-%m-%d}" if node.reason_at is not None else ""
    why = f": {node.reason}" if node.reason else ""
    if _is_owned(node):
        return f"is drained in {scheduler}{by}{since}{why}"
    flags = f" ({', '.join(node.flags)})" if node.flags else ""
    return f"takes no jobs: {scheduler} calls it {node.state.value}{flags}{by}{since}{why}"
