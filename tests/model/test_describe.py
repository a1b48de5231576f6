"""What the audit log says of a command: its kind, and everything it names."""

from dataclasses import fields, is_dataclass
from typing import Any, get_args

import pytest

from muster.model.audit import canonical
from muster.model.command import Intent, PollTask, StartTask, Work, describe
from muster.model.lease import Fence
from muster.model.stack import PackagePin

MEMBERS: tuple[type[Any], ...] = (*get_args(Intent), *get_args(Work))


def example(kind: type[Any]) -> Any:
    """A member with a value of its own in each field."""
    given: dict[str, object] = {}
    for field in fields(kind):
        if field.name in ("pins", "back"):
            given[field.name] = (PackagePin(f"the-{field.name}", "1-1"),)
        elif field.name in ("facts", "gone", "nodes"):
            given[field.name] = (f"the-{field.name}",)
        elif field.name == "fence":
            given[field.name] = Fence(3, 4)
        elif field.name == "work":
            given[field.name] = example(get_args(Work)[0])
        else:
            given[field.name] = f"the-{field.name}"
    return kind(**given)


@pytest.mark.parametrize("kind", MEMBERS, ids=lambda kind: kind.__name__)
def test_every_field_of_a_command_is_in_its_description(kind: type[Any]) -> None:
    said = canonical(describe(example(kind))).decode()
    for field in fields(kind):
        if is_dataclass(getattr(example(kind), field.name)) and field.name == "work":
            assert canonical(describe(example(get_args(Work)[0]))).decode() in said
        elif field.name == "fence":
            assert '"3.4"' in said
        else:
            assert f"the-{field.name}" in said


def test_every_command_has_a_kind_of_its_own() -> None:
    kinds = [describe(example(kind))["kind"] for kind in MEMBERS]
    assert len(set(kinds)) == len(MEMBERS)
    assert "start-task" in kinds


@pytest.mark.parametrize("work", get_args(Work), ids=lambda kind: kind.__name__)
def test_a_task_says_what_it_is_for(work: type[Any]) -> None:
    assert describe(StartTask("t", Fence(1, 1), example(work)))["work"] == describe(example(work))


def test_a_question_after_a_task_names_it() -> None:
    assert describe(PollTask("task-1")) == {"kind": "poll-task", "task_id": "task-1"}
