"""Plans as files: written for review and for other machines, read back whole or refused. What a plan means is `planner`'s."""

import json
from pathlib import Path
from typing import Final

from muster.control.site import Site, plan_named
from muster.model.errors import BadInput
from muster.model.plan import Plan, plan_body
from muster.model.plan_form import plan_from_body

SCHEMA: Final = "muster.plan-file/1"
MOST_BYTES: Final = 512 * 1024 * 1024
"""A plan of a hundred thousand nodes is 40 MB; a device or an endless pipe given by mistake is not read for ever."""


def write_plan(path: Path, plan: Plan) -> None:
    """Write a plan as JSON, one line for each small thing, so that two of them can be compared. Raises BadInput where that cannot be done."""
    text = json.dumps(
        {"schema": SCHEMA, "id": plan.id, "plan": plan_body(plan)}, ensure_ascii=False, indent=1, sort_keys=True
    )
    try:
        path.write_text(text + "\n", encoding="utf-8")
    except OSError as error:
        raise BadInput(f"{path}: cannot be written: {error.strerror}", hint="name another file") from None


def read_plan(path: Path) -> Plan:
    """The plan in a file. Raises BadInput, naming file and place, for what is none, and for one that was changed after it was written."""
    try:
        with path.open("rb") as file:
            content = file.read(MOST_BYTES + 1)
    except OSError as error:
        raise BadInput(f"{path}: cannot be read: {error.strerror}", hint="see: muster plans list") from None
    if len(content) > MOST_BYTES:
        raise BadInput(f"{path}: is larger than {MOST_BYTES} bytes, and so no plan")
    try:
        body = json.loads(content)
    except (ValueError, RecursionError) as error:
        where = f":{error.lineno}" if isinstance(error, json.JSONDecodeError) else ""
        raise BadInput(f"{path}{where}: is no JSON: {getattr(error, 'msg', error)}", hint=_MAKE) from None
    if not isinstance(body, dict) or body.get("schema") != SCHEMA:
        raise BadInput(f"{path}: is no plan of Muster ({SCHEMA})", hint=_MAKE)
    try:
        plan = plan_from_body(body.get("plan"))
    except ValueError as error:
        raise BadInput(f"{path}: {error}", hint=_MAKE) from None
    if plan.id != body.get("id"):
        raise BadInput(
            f"{path}: was changed after it was written: it calls itself {body.get('id')}, and its content is {plan.id}",
            hint="a plan is never patched: change the policy and plan again",
        )
    return plan


_MAKE = "plans are written by: muster plan --out FILE"


async def plan_given(site: Site, wanted: str, *, keep: bool = False) -> Plan:
    """The plan that `wanted` names: a file (with a `/`, or ending in .json), else an id, a beginning of it, or `last`.

    With `keep` a plan out of a file is kept in the store, as what is approved or applied must be. Raises UnknownName, and BadInput for a file
    that holds no plan or one for another fleet.
    """
    if "/" not in wanted and not wanted.endswith(".json"):
        return await plan_named(site, wanted)
    plan = read_plan(Path(wanted))
    if plan.fleet != site.policy.fleet:
        raise BadInput(
            f"{wanted}: is a plan for fleet {plan.fleet}, and this is {site.policy.fleet}",
            hint="name the right --fleet FILE",
        )
    if keep:
        await site.store.save_plan(plan)
    return plan
