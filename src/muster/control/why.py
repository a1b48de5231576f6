"""The use case `why`: for a node, a pool, a plan or a rollout, how it stands and what that rests on, as one kind of tree. Changes no node.

Every answer is a conclusion and its causes, whatever was asked about; words and JSON are made from that tree and from nothing else.
"""

from collections.abc import Iterator, Mapping, Sequence
from enum import StrEnum

from muster.control.site import Site, named, plan_named
from muster.control.solving import class_of, demand_of, solve_for, with_wish
from muster.model.errors import UnknownName
from muster.model.fact import NodeFacts
from muster.model.frozen import dataclass
from muster.model.plan import Plan, Waiting
from muster.model.policy import Policy, Pool
from muster.model.run import Rollout, RolloutState, Run
from muster.planner.pools import Placing, placed
from muster.solver.candidates import wish_text
from muster.solver.explain import Because, Hint, NoCandidate, Observed, Wanted, located
from muster.solver.fleet import Member, solve_fleet
from muster.solver.problem import Answer, Candidate, NodeClass, NoSolution
from muster.solver.words import listing


class About(StrEnum):
    """What was asked about."""

    NODE = "node"
    POOL = "pool"
    PLAN = "plan"
    ROLLOUT = "rollout"


class Says(StrEnum):
    """The answer in a word. `unknown`: it cannot be told from what was seen; `stands`: no question of yes or no."""

    YES = "yes"
    NO = "no"
    UNKNOWN = "unknown"
    STANDS = "stands"


@dataclass(frozen=True, slots=True)
class Answered:
    """One answer: for which nodes (of which pool), in a word, why, and what would help. `chosen` only where it is yes."""

    nodes: tuple[str, ...]
    pool: str
    says: Says
    because: Because
    hints: tuple[Hint, ...] = ()
    chosen: Candidate | None = None
    restart: bool = False


@dataclass(frozen=True, slots=True)
class Why:
    """All answers about one target, in the order of the inventory or of the plan."""

    about: About
    target: str
    answers: tuple[Answered, ...]


async def why(site: Site, target: str, *, driver: str | None = None) -> Why:
    """Why a node, or the nodes of a pool, can or cannot carry what is wanted (or `driver`); why a plan or a rollout stands as it does.

    Raises UnknownName for a target or driver that nobody knows.
    """
    if target.startswith("plan-"):
        plan = await plan_named(site, target)
        return Why(About.PLAN, plan.id, tuple(_of_plan(plan)))
    if target.startswith("rollout-"):
        return await _of_rollout(site, target)
    return await _of_nodes(site, target, driver)


async def _of_nodes(site: Site, target: str, driver: str | None) -> Why:
    pools, nodes = [p.name for p in site.policy.pools], [n.name for n in site.nodes]
    name = named("node or pool", target, [*pools, *nodes])
    # Of a node's neighbours nothing is asked: in a large fleet reading them would cost more than the answer.
    asked = site.nodes if name in pools else tuple(each for each in site.nodes if each.name == name)
    facts = await site.known_facts() if name in pools else await _facts_of(site, name)
    placings = placed(asked, facts, site.policy)
    policy = with_wish(site.policy, driver, None)
    chosen = [n for n, placing in placings.items() if n == name or name in placing.pools]
    grouped: dict[tuple[NodeClass | str, tuple[str, ...], tuple[str, ...]], list[str]] = {}
    for node in chosen:
        placing = placings[node]
        key = (_class(site, facts.get(node)), placing.pools, placing.unknown)
        grouped.setdefault(key, []).append(node)
    answers = [_class_answer(site, policy, key, tuple(members), driver) for key, members in grouped.items()]
    if name in pools and not answers:
        return Why(About.POOL, name, (_empty(site, name, placings),))
    if name in pools:
        chosen_drivers = {each.chosen.driver.text for each in answers if each.chosen is not None}
        if len(chosen_drivers) > 1:
            answers.append(_mixed(site, policy.pool(name), grouped))
        return Why(About.POOL, name, tuple(answers))
    return Why(About.NODE, name, tuple(answers))


def _empty(site: Site, pool: str, placings: Mapping[str, Placing]) -> Answered:
    """A pool in which no node is known to be, with those of which it cannot be told."""
    doubts: dict[str, list[str]] = {}
    for node, placing in placings.items():
        for reason in placing.unknown:
            if reason.startswith(f"{pool}: "):
                doubts.setdefault(reason.removeprefix(f"{pool}: "), []).append(node)
    causes = tuple(Because(f"of {listing(nodes)}: {reason}", ()) for reason, nodes in doubts.items())
    tree = Because(f"no node is known to be in pool {pool} ({_place(site, f'pools.{pool}.match')})", causes)
    hint = Hint("muster collect" if doubts else "another `match`; muster nodes list shows which pool each node is in")
    return Answered((), pool, Says.UNKNOWN if doubts else Says.NO, tree, (hint,))


def _mixed(
    site: Site,
    pool: Pool | None,
    grouped: Mapping[tuple[NodeClass | str, tuple[str, ...], tuple[str, ...]], Sequence[str]],
) -> Answered:
    """How few drivers would do for a pool whose classes would each get another one, and for whom each of them is."""
    demand = None if pool is None else demand_of(pool)
    assert demand is not None  # a pool without a wish has no answer with a driver
    kinds = [
        (kind, nodes) for (kind, pools, _), nodes in grouped.items() if not isinstance(kind, str) and len(pools) == 1
    ]
    found = solve_fleet([Member(kind, demand, len(nodes)) for kind, nodes in kinds], site.knowledge())
    causes = tuple(
        Because(
            f"{each.driver.text} is for {each.nodes} nodes, and {each.nodes_alone} of them no other of these drivers serves",
            (Because(listing([node for at in each.serves for node in kinds[at][1]]), ()),),
        )
        for each in found.chosen
    )
    few = f"{len(found.chosen)} would do" if len(found.chosen) < found.best else "no fewer would do"
    tree = Because(f"each class's best makes {found.best} drivers in the pool; {few}", causes)
    nodes = tuple(node for _, members in kinds for node in members)
    hint = Hint(f"for fewer, name one: driver: {{want: {found.chosen[0].driver.text}}}")
    return Answered(
        nodes,
        pool.name if pool is not None else "",
        Says.STANDS,
        tree,
        (hint,) if len(found.chosen) < found.best else (),
    )


async def _facts_of(site: Site, node: str) -> Mapping[str, NodeFacts]:
    found = await site.store.facts_of(node)
    return {} if found is None else {node: found}


def _class(site: Site, facts: NodeFacts | None) -> NodeClass | str:
    return class_of(site, facts)


def _class_answer(
    site: Site,
    policy: Policy,
    key: tuple[NodeClass | str, tuple[str, ...], tuple[str, ...]],
    nodes: tuple[str, ...],
    driver: str | None,
) -> Answered:
    kind, pools, unknown = key
    who = listing(nodes)
    if len(pools) != 1:
        return _in_no_one_pool(who, nodes, pools, unknown)
    pool = policy.pool(pools[0])
    assert pool is not None
    wanted = _wanted(pool, site, driver)
    if isinstance(kind, str):
        cause = Because(f"{who} {kind}", ())
        tree = Because(f"whether {who} can carry {wanted.value} cannot be told", (wanted, cause))
        return Answered(nodes, pool.name, Says.UNKNOWN, tree, (Hint("muster collect"),))
    answer = solve_for(site, kind, pool)
    if driver is None:
        return _located(site, _answered(who, nodes, pool, wanted, answer))
    return _answered(who, nodes, pool, wanted, answer)


def _wanted(pool: Pool, site: Site, driver: str | None) -> Wanted:
    if driver is not None:
        return Wanted("--not", driver)
    wish = wish_text(pool.driver.wish) if pool.driver is not None else "no driver"
    return Wanted(f"pools.{pool.name}.driver", wish, _place(site, f"pools.{pool.name}.driver"))


def _place(site: Site, path: str) -> str:
    while path and path not in site.policy.lines:
        path = path.rpartition(".")[0]
    return f"{site.policy_path.name}:{site.policy.lines[path]}" if path else ""


def _located(site: Site, answered: Answered) -> Answered:
    tree = located(answered.because, lambda path: _place(site, path))
    return Answered(
        answered.nodes, answered.pool, answered.says, tree, answered.hints, answered.chosen, answered.restart
    )


def _in_no_one_pool(who: str, nodes: tuple[str, ...], pools: Sequence[str], unknown: Sequence[str]) -> Answered:
    if pools:
        tree = Because(f"nothing is planned on {who}", (Because(f"it matches the pools {' and '.join(pools)}", ()),))
        return Answered(nodes, "", Says.UNKNOWN, tree, (Hint("narrow the `match` of one of them"),))
    if unknown:
        causes = tuple(Because(each, ()) for each in unknown)
        return Answered(
            nodes,
            "",
            Says.UNKNOWN,
            Because(f"which pool {who} belongs to cannot be told", causes),
            (Hint("muster collect"),),
        )
    tree = Because(f"nothing is planned on {who}", (NoCandidate("no pool of the policy matches it"),))
    return Answered(nodes, "", Says.STANDS, tree, (Hint("add it to a pool's `match`"),))


def _answered(who: str, nodes: tuple[str, ...], pool: Pool, wanted: Wanted, answer: Answer) -> Answered:
    if isinstance(answer, NoSolution):
        says = Says.UNKNOWN if answer.unknown else Says.NO
        verb = "cannot be said to carry" if answer.unknown else "cannot carry"
        if answer.rules == ("no-wish",):
            return Answered(nodes, pool.name, Says.STANDS, Because(f"nothing is planned on {who}", (answer.because,)))
        tree = Because(f"{who} {verb} {wanted.value}", (_under(answer.because, wanted),))
        return Answered(nodes, pool.name, says, tree, answer.hints)
    chosen = answer.chosen
    restart = (Because("the node must restart: a reload of the module is not enough", answer.reboot),)
    tree = Because(
        f"{who} can carry {chosen.driver.text}, {chosen.flavour} modules",
        (wanted, *answer.because, *(restart if answer.reboot else ())),
    )
    return Answered(nodes, pool.name, Says.YES, tree, (), chosen, bool(answer.reboot))


def _under(tree: Because, wanted: Wanted) -> Because:
    """The solver's tree, its leaf for the wish being the one that was asked about."""
    same = f"pools.{wanted.path.split('.')[1]}.driver" if wanted.path != "--not" else ""
    causes = tuple(
        wanted
        if isinstance(each, Wanted) and each.path.endswith(".driver") and (not same or each.path == same)
        else each
        for each in tree.causes
    )
    return Because(tree.conclusion, tuple(dict.fromkeys(causes)))


def _of_plan(plan: Plan) -> Iterator[Answered]:
    """The plan itself, then what it leaves out, each reason with the nodes it holds for."""
    what = f"changes {len(plan.nodes)} nodes to {plan.target}" if plan.nodes else "changes nothing"
    stages = tuple(
        Because(f"stage {stage.name} has {len(stage.nodes)} nodes: {listing(stage.nodes)}", ()) for stage in plan.stages
    )
    admitted = tuple(Because(line, ()) for line in plan.because)
    yield Answered(
        tuple(part.node for part in plan.nodes), "", Says.STANDS, Because(f"{plan.id} {what}", (*stages, *admitted))
    )
    left: dict[tuple[str, str], list[Waiting]] = {}
    for each in plan.left_out:
        left.setdefault((each.on.value, each.detail), []).append(each)
    for members in left.values():
        on, detail = members[0].on, members[0].detail
        nodes = tuple(each.subject for each in members)
        tree = Because(f"{listing(nodes)} is not in it", (Because(f"{detail} [{on.value}]", ()),))
        yield Answered(nodes, "", Says.STANDS, tree)


async def _of_rollout(site: Site, target: str) -> Why:
    rollouts = [each for each in await site.store.rollouts() if each.rollout_id.startswith(target)]
    if len(rollouts) != 1:
        raise UnknownName(f"no rollout is called {target!r}", hint="see: muster rollouts list")
    rollout = rollouts[0]
    return Why(About.ROLLOUT, rollout.rollout_id, tuple(_standing(rollout, await site.store.runs(rollout.rollout_id))))


_NEXT: Mapping[RolloutState, str] = {
    RolloutState.RUNNING: "muster rollouts watch {}",
    RolloutState.PAUSED: "muster rollouts resume {}",
    RolloutState.HALTED: "muster rollouts show {}; then plan again, or: muster rollouts abort {}",
}


def _standing(rollout: Rollout, runs: Sequence[Run]) -> Iterator[Answered]:
    """How the rollout stands, then each run that waits or has a cause to tell."""
    counts: dict[str, int] = {}
    for run in runs:
        word = run.phase.value if run.released else "not released yet"
        counts[word] = counts.get(word, 0) + 1
    causes: list[Because | Observed] = [Because(rollout.why, ())] if rollout.why else []
    causes += [Observed(f"runs.{word}", str(count)) for word, count in counts.items()]
    says = Says.NO if rollout.state in (RolloutState.HALTED, RolloutState.ABORTED) else Says.STANDS
    hint = _NEXT.get(rollout.state, "").replace("{}", rollout.rollout_id)
    tree = Because(f"{rollout.rollout_id} is {rollout.state.value}", (Wanted("plan", rollout.plan_id), *causes))
    nodes = tuple(run.node for run in runs)
    yield Answered(nodes, "", says, tree, (Hint(hint),) if hint else ())
    for run in runs:
        words = run.waiting or run.notes.get("cause", "")
        if words and run.released:
            yield Answered(
                (run.node,), "", Says.STANDS, Because(f"{run.node} is {run.phase.value}", (Because(words, ()),))
            )
