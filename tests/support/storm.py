"""Rollouts under random kills: the carrying process, the wrapper of a task on a node, the connection. What is counted is what the nodes' own
dpkg logged, and nothing that Muster wrote down.
"""

import os
import signal
import sqlite3
import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from contextlib import closing, suppress
from dataclasses import dataclass, field
from pathlib import Path
from random import Random
from typing import Protocol

from muster.loopback.fleet import LoopbackFleet
from muster.loopback.nodes import processes_under
from muster.loopback.observe import Transition, transitions
from tests.support.desk import Desk, until

ENDED = frozenset({"done", "rolled-back", "left-out", "quarantined"})
LONGEST_WAIT_S = 1.2
"""Between two kills: a change of a node takes seconds, so each is hit in the middle several times."""

LIMIT_S = 600.0
CUT_S = 0.4


class World(Protocol):
    """Nodes that can be hurt."""

    @property
    def names(self) -> Sequence[str]: ...
    def log(self, node: str) -> tuple[Transition, ...]: ...
    def kill_wrapper(self, node: str) -> bool:
        """SIGKILL to the wrapper of a running task; False where none runs."""
        ...

    def cut(self, node: str) -> bool:
        """Every open connection to the node breaks, and none can be made for a moment."""
        ...

    def look_after(self) -> None:
        """What a person does between rollouts: Muster restarts no node a third time within a day unasked."""
        ...


@dataclass
class Loopback:
    """A loopback fleet as a world."""

    fleet: LoopbackFleet

    @property
    def names(self) -> Sequence[str]:
        return self.fleet.names

    def log(self, node: str) -> tuple[Transition, ...]:
        return transitions(self.fleet.node_root(node))

    def kill_wrapper(self, node: str) -> bool:
        for pid in processes_under(self.fleet.node_root(node)):
            try:
                words = Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0")
            except OSError:
                continue
            # `sh TASK/wrapper TASK DEADLINE`; what it runs is `sh TASK/command`.
            if len(words) > 2 and words[1].endswith(b"/wrapper"):
                with suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)
                    return True
        return False

    def cut(self, node: str) -> bool:
        self.fleet.set_knob(node, "unreachable")
        pause(CUT_S)
        self.fleet.set_knob(node, "unreachable", None)
        return True

    def look_after(self) -> None:
        pass


@dataclass
class Storm:
    """Rollouts to and fro between two drivers over all nodes of `world`, with `kills` kills at random moments.

    `rollouts` gives for each that ended: its target, the phases that its nodes came to, and what each node's dpkg did meanwhile.
    """

    desk: Desk
    world: World
    drivers: tuple[str, str]
    kills: int
    seed: int
    delivered: Counter[str] = field(default_factory=Counter)
    rollouts: list[tuple[str, Mapping[str, str], Mapping[str, tuple[Transition, ...]]]] = field(default_factory=list)

    def rage(self) -> None:
        """Carry out rollouts until all kills were delivered and the last one has ended."""
        chance = Random(self.seed)
        target = self.drivers[1]
        while self.delivered.total() < self.kills:
            self.desk.ok("collect")
            plan = str(self.desk.ok("plan", "--driver", target, "--json").body["id"])
            if not self._has_nodes(plan):
                target = self.drivers[0] if target == self.drivers[1] else self.drivers[1]
                continue
            self.desk.ok("plans", "approve", plan)
            self.world.look_after()
            marks = {node: len(self.world.log(node)) for node in self.world.names}
            self._carried(plan, chance)
            phases = self.desk.phases()
            done = {node: self.world.log(node)[marks[node] :] for node in self.world.names}
            self.rollouts.append((target, phases, done))
            if set(phases.values()) == {"done"}:
                target = self.drivers[0] if target == self.drivers[1] else self.drivers[1]
            for node, phase in phases.items():
                if phase == "quarantined":
                    self.desk.ok("nodes", "repair", node, "--yes")

    def _has_nodes(self, plan: str) -> bool:
        shown = self.desk.ok("plans", "show", plan, "--json").body["plan"]
        return isinstance(shown, Mapping) and bool(shown["nodes"])

    def _carried(self, plan: str, chance: Random) -> None:
        limit = time.monotonic() + LIMIT_S
        while True:
            said = self.desk.muster("apply", plan, "--detach")
            assert said.exit_code in (0, 5, 6), said.out + said.err  # under way, or ended meanwhile: in part, or halted
            if self.delivered.total() >= self.kills:
                until(lambda: self._ended(plan), LIMIT_S)
            if self._ended(plan):
                return
            assert time.monotonic() < limit, "the rollout does not come to an end"
            pause(chance.random() * LONGEST_WAIT_S)
            kind = chance.choices(("carrier", "wrapper", "connection"), (6, 2, 3))[0]
            node = chance.choice(list(self.world.names))
            if self._kill(kind, node):
                self.delivered[kind] += 1

    def _kill(self, kind: str, node: str) -> bool:
        match kind:
            case "carrier":
                return self.desk.kill_carrier() is not None
            case "wrapper":
                return any(self.world.kill_wrapper(each) for each in (node, *self.world.names))
            case _:
                return self.world.cut(node)

    def _ended(self, plan: str) -> bool:
        with closing(sqlite3.connect(f"file:{self.desk.store}?mode=ro", uri=True)) as on:
            (state,) = on.execute("SELECT state FROM rollouts WHERE plan_id = ?", (plan,)).fetchone()
        runs = self.desk.runs().values()
        return state == "done" or (state == "halted" and all(row["ended"] or not row["released"] for row in runs))


def pause(seconds: float) -> None:
    """Let time pass: the moment of a kill is chance's."""
    limit = time.monotonic() + seconds
    until(lambda: time.monotonic() >= limit, seconds + 30)


def faults(storm: Storm, members: Callable[[str], Mapping[str, str]]) -> list[str]:
    """What breaks the law that one change is one transaction. `members` gives name -> version of the packages of a driver."""
    found = []
    for number, (target, phases, done) in enumerate(storm.rollouts):
        for node, log in done.items():
            where = f"rollout {number} to {target}, {node} ({phases.get(node, 'not planned')})"
            counted = Counter((each.action, each.package.partition(":")[0], each.old, each.new) for each in log)
            found += [f"{where}: {count} times {what}" for what, count in counted.items() if count > 1]
            found += [f"{where}: {each} over itself" for each in log if each.old == each.new]
            if phases.get(node, "left-out") in ("left-out", "preflight-required") and log:
                found.append(f"{where}: changed")
            wanted = members(target)
            came = {
                each.package.partition(":")[0] for each in log if each.new == wanted.get(each.package.partition(":")[0])
            }
            if phases.get(node) == "done" and came != set(wanted):
                found.append(f"{where}: {sorted(set(wanted) - came)} did not come in it")
    return found
