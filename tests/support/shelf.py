"""A desk over a store that was filled by hand: for commands that only read what was seen, without a node."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path

from muster.backends.store.sqlite import open_store
from muster.model.fact import FactValue, NodeFacts
from tests.support.desk import Desk
from tests.support.planning import NEW, OLD, carrying, seen
from tests.support.values import T0, inline

POLICY = f"""
schema: 1
fleet: lab
inventory:
  - ansible: hosts.ini
pools:
  train: {{match: {{label.role: train}}, driver: {{want: {OLD}}}}}
  inference: {{match: {{label.role: inference}}, driver: {{want: {OLD}}}}}
"""
HOSTS = (
    "[train]\nn1 role=train rack=r1\nn2 role=train rack=r2\n[inference]\nn3 role=inference rack=r2\nn4 role=inference\n"
)

FLEET: Mapping[str, Mapping[str, FactValue | None]] = {
    "n1": {"gpu[GPU-a].ecc.mode": "Enabled", "gpu[GPU-b].ecc.mode": "Disabled"},
    "n2": {"gpu.product": "NVIDIA A100-SXM4-80GB", "gpu[GPU-c].ecc.mode": "Enabled"},
    "n3": {**carrying(NEW), "gpu.product": None, "library.libcuda.version": OLD},
}
"""What differs from a good node; n4 was never looked at."""


def made_now(facts: NodeFacts) -> NodeFacts:
    """The same look, a minute ago by this machine's clock: commands judge age by it."""
    then = datetime.now(UTC) - timedelta(seconds=60)
    told = {p: replace(f, observed_at=then) for p, f in facts.facts.items()}
    if "clock.utc_s" in told:
        told["clock.utc_s"] = replace(told["clock.utc_s"], value=int(then.timestamp()))
    return replace(facts, observed_at=then, facts=told)


def put(desk: Desk, looks: Sequence[NodeFacts]) -> None:
    """Put these looks into the desk's store."""
    store = open_store(str(desk.store))
    inline(store.save_facts(looks))
    inline(store.close())


def shelf(folder: Path, fleet: Mapping[str, Mapping[str, FactValue | None]] = FLEET) -> Desk:
    """A desk in `folder` that knows four nodes and has seen those of `fleet`."""
    (folder / "fleet.yaml").write_text(POLICY, encoding="utf-8")
    (folder / "hosts.ini").write_text(HOSTS, encoding="utf-8")
    desk = Desk(folder, folder / "muster.db")
    put(desk, [made_now(seen(name, values)) for name, values in fleet.items()])
    return desk


__all__ = ["FLEET", "NEW", "OLD", "T0", "made_now", "put", "shelf"]
