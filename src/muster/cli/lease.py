"""`muster lease`: who holds which node, and giving one back by hand."""

from typing import Annotated

from muster.cli import declare
from muster.cli.output import AsJson, Fleet, StorePath, app, envelope, run, say, table
from muster.control.bootstrap import open_site
from muster.control.leases import held
from muster.control.leases import release as release_lease

PARTIAL = 5

lease_app = app("Who holds which node for maintenance, and giving one back by hand.")


@lease_app.command("list")
def lease_list(fleet: Fleet = None, store: StorePath = None, as_json: AsJson = False) -> None:
    """Ask every node who holds it. Exit 5 when a node could not be asked."""

    async def work() -> int:
        async with open_site(fleet, store) as site:
            found = await held(site, site.nodes)
            leases = [each for each in found if each.lease is not None]
            away = {each.node: each.away for each in found if each.lease is None}
            rows = [
                {
                    "node": each.node, "holder": each.lease.holder, "since": each.lease.taken_at,
                    "rollout_id": each.lease.rollout_id, "plan_id": each.lease.plan_id, "number": each.lease.number,
                    "expired": each.lease.expired, "reason": each.lease.reason,
                }
                for each in leases if each.lease is not None
            ]  # fmt: skip
            if as_json:
                say(envelope("leases", {"leases": rows, "unreachable": away}))
            else:
                if rows:
                    table(tuple(rows[0]), [[str(value) for value in row.values()] for row in rows])
                else:
                    say("no node is held")
                for node, why in away.items():
                    say(f"{node}: {why}")
            return PARTIAL if away else 0

    run(work, as_json=as_json)


@lease_app.command("release")
def lease_release(
    node: Annotated[str, declare.argument(says="The node's name, or a unique beginning of it.")],
    reason: Annotated[str, declare.option("--reason", says="Why, for the audit log.")],
    fleet: Fleet = None,
    store: StorePath = None,
    as_json: AsJson = False,
) -> None:
    """Give a node back by hand, after a person has looked after it: a quarantined one, or one that a lost control plane left held."""

    async def work() -> int:
        async with open_site(fleet, store) as site:
            was = await release_lease(site, node, reason=reason)
            if as_json:
                say(
                    envelope(
                        "lease",
                        {"node": node, "released": was.number, "holder": was.holder, "rollout_id": was.rollout_id},
                    )
                )
            else:
                say(
                    f"{node}: released, was held by {was.holder} for {was.rollout_id}; the node was not validated by this"
                )
            return 0

    run(work, as_json=as_json)
