"""A scheduler's job, or on a plain SSH machine a process that holds a GPU."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Job:
    """One job with the nodes it runs on. On plain machines `job_id` is the process id on its single node."""

    job_id: str
    name: str
    nodes: tuple[str, ...]
