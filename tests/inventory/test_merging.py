"""One node under several names is one node; whatever is in doubt stays apart and is shown; the first source counts."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from muster.control.inventory import merged
from muster.model.errors import BadInput
from muster.model.inventory import Listing, Said
from muster.model.node import LOCAL_ADDRESS, Node


def node(
    name: str, source: str, address: str | None = None, port: int | None = None, user: str | None = None, **labels: str
) -> Node:
    return Node(name, address or name, port, user, labels, source)


def listing(source: str, *nodes: Node) -> Listing:
    return Listing(source, nodes)


def names(found: object) -> list[str]:
    return [each.name for each in getattr(found, "nodes")]  # noqa: B009


def test_a_short_name_and_its_fqdn_are_one_node_with_both_names_kept() -> None:
    found = merged(
        [listing("slurm", node("gpu01", "slurm")), listing("ini", node("gpu01.site.example", "ini:3", role="train"))]
    )
    assert names(found) == ["gpu01"]
    assert found.names["gpu01"] == (Said("slurm", "gpu01"), Said("ini:3", "gpu01.site.example"))
    assert found.other_names("gpu01") == ("gpu01.site.example",)
    assert dict(found.nodes[0].labels) == {"role": "train"}
    assert (found.conflicts, found.warnings) == ((), ())


def test_two_names_at_one_address_are_one_node() -> None:
    found = merged(
        [listing("ini", node("web", "ini:1", "10.0.0.1")), listing("slurm", node("gpu01", "slurm", "10.0.0.1"))]
    )
    assert names(found) == ["web"]
    found = merged(
        [listing("hosts", node("10.0.0.1", "hosts:1")), listing("slurm", node("gpu01", "slurm", "10.0.0.1"))]
    )
    assert names(found) == ["10.0.0.1"]


def test_one_address_with_two_ports_is_two_nodes() -> None:
    found = merged([listing("a", node("x", "a", "127.0.0.1", 2201)), listing("b", node("y", "b", "127.0.0.1", 2202))])
    assert names(found) == ["x", "y"]


def test_two_names_of_one_source_are_two_nodes_and_a_shared_address_is_said() -> None:
    found = merged(
        [
            listing(
                "ini",
                node("a", "ini:1", "10.0.0.1"),
                node("b", "ini:2", "10.0.0.1"),
                node("c", "ini:3"),
                node("c.site", "ini:4"),
            )
        ]
    )
    assert names(found) == ["a", "b", "c", "c.site"]
    assert found.warnings == ("a, b are reached at one address, 10.0.0.1: if they are one machine, name it once",)


def test_hosts_of_two_domains_with_one_short_name_are_two_nodes_and_the_short_one_is_in_doubt() -> None:
    both = listing("ini", node("gpu01.a.example", "ini:1"), node("gpu01.b.example", "ini:2"))
    found = merged([both, listing("slurm", node("gpu01", "slurm"))])
    assert names(found) == ["gpu01", "gpu01.a.example", "gpu01.b.example"]
    assert found.warnings == (
        "slurm: gpu01 may be the same node as gpu01.a.example or gpu01.b.example; they are kept apart",
    )
    turned = merged([listing("slurm", node("gpu01", "slurm")), both])
    assert names(turned) == ["gpu01", "gpu01.a.example", "gpu01.b.example"]
    assert len(turned.warnings) == 2


def test_a_merged_node_keeps_other_domains_out() -> None:
    sources = [listing("s", node("gpu01", "s")), listing("a", node("gpu01.a", "a")), listing("b", node("gpu01.b", "b"))]
    assert names(merged(sources)) == ["gpu01", "gpu01.b"]


def test_what_sources_disagree_over_is_shown_and_the_first_counts() -> None:
    found = merged(
        [
            listing("ini", node("gpu01", "ini:1", "10.0.0.1", 22, "admin", role="train", rack="r1")),
            listing("yml", node("gpu01", "yml:7", "10.0.0.9", 2222, "root", role="infer", rack="r1")),
        ]
    )
    (one,) = found.nodes
    assert (one.address, one.port, one.user, dict(one.labels)) == (
        "10.0.0.1",
        22,
        "admin",
        {"role": "train", "rack": "r1"},
    )
    assert [(each.what, [said.value for said in each.said]) for each in found.conflicts] == [
        ("address", ["10.0.0.1", "10.0.0.9"]),
        ("port", ["22", "2222"]),
        ("user", ["admin", "root"]),
        ("label role", ["train", "infer"]),
    ]


def test_a_source_that_only_lists_names_does_not_say_how_a_node_is_reached() -> None:
    found = merged([listing("hosts", node("gpu01", "hosts:1")), listing("ini", node("gpu01", "ini:1", "10.0.0.1", 22))])
    assert (found.nodes[0].address, found.nodes[0].port, found.nodes[0].source, found.conflicts) == (
        "10.0.0.1",
        22,
        "hosts:1",
        (),
    )


def test_carried_outputs_never_hide_how_a_node_is_reached() -> None:
    sources = [listing("dir", node("gpu01", "dir", "files:dir")), listing("hosts", node("gpu01.site", "hosts:1"))]
    assert merged(sources).nodes[0].address == "gpu01.site"
    assert (
        merged([listing("dir", node("vm", "dir", "files:dir")), listing("l", node("vm", "l", LOCAL_ADDRESS))])
        .nodes[0]
        .address
        == LOCAL_ADDRESS
    )
    assert merged(sources).conflicts == ()


def test_two_folders_of_outputs_do_not_make_their_nodes_one() -> None:
    found = merged([listing("a", node("x", "a", "files:a")), listing("b", node("y", "b", "files:a"))])
    assert names(found) == ["x", "y"]


def test_names_are_compared_without_case_and_an_address_is_no_name_with_a_domain() -> None:
    assert names(merged([listing("a", node("GPU01", "a")), listing("b", node("gpu01", "b"))])) == ["GPU01"]
    assert names(merged([listing("a", node("10.0.0.1", "a")), listing("b", node("10.0.0.2", "b"))])) == [
        "10.0.0.1",
        "10.0.0.2",
    ]


NAMES = st.sampled_from(["a", "b", "a.x", "a.y", "b.x", "10.0.0.1", "A"])
ADDRESSES = st.sampled_from([None, "10.0.0.1", "10.0.0.2", "a.x"])
NODES = st.builds(
    lambda name, address, port: node(name, "s", address, port), NAMES, ADDRESSES, st.sampled_from([None, 22, 23])
)
LISTINGS = st.lists(
    st.lists(NODES, max_size=4, unique_by=lambda each: each.name).map(lambda nodes: listing("s", *nodes)), max_size=4
)


@given(LISTINGS)
def test_every_name_of_every_source_is_a_name_of_just_one_node_and_no_source_loses_one(listings: list[Listing]) -> None:
    found = merged(listings)
    assert names(found) == sorted(set(names(found)))
    known = [(at, said.value) for at in found.names for said in found.names[at]]
    assert sorted(name for _, name in known) == sorted(
        each.name for each_listing in listings for each in each_listing.nodes
    )
    for each_listing in listings:
        own = [at for each in each_listing.nodes for at in {at for at, name in known if name == each.name}]
        assert len(own) == len(each_listing.nodes)
        assert len(set(own)) == len(own)


@pytest.mark.parametrize(
    "name", ["a;>/tmp/x", "-oProxyCommand=touch", "../../etc", "a b", "$(id)", "`id`", "a\x1b[31m", "\u202egpu", "g" * 254, "", "gpu01\n"]
)  # fmt: skip
def test_what_could_be_more_than_a_name_to_a_shell_a_terminal_or_a_file_system_is_no_node(name: str) -> None:
    for told in (
        node(name, "hosts:3", "gpu01"),
        node("gpu01", "hosts:3", name or " "),
        node("gpu01", "hosts:3", user=name),
    ):
        with pytest.raises(BadInput, match=r"hosts:3: "):
            merged([listing("hosts", told)])


@pytest.mark.parametrize("name", ["gpu01", "gpu-01.site.example", "10.0.0.1", "fe80::1%eth0", "::1", "rack_7.gpu"])
def test_names_and_addresses_of_every_usual_form_are_nodes(name: str) -> None:
    assert names(merged([listing("hosts", node(name, "hosts:3", user="CORP\\ada.b"))])) == [name]
