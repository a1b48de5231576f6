"""The audit chain: whole it says nothing, and whatever is done to it, it says so."""

from collections.abc import Sequence
from dataclasses import replace
from types import MappingProxyType

import pytest
from hypothesis import given
from hypothesis import strategies as st

from muster.model.audit import GENESIS, Entry, Record, append, canonical, entry_hash, faults

TEXT = st.text(st.characters(codec="utf-8"), max_size=5)
JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | TEXT, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(TEXT, inner, max_size=3)
)  # fmt: skip
RECORD = st.builds(Record, at=TEXT, actor=TEXT, node=TEXT, kind=TEXT, body=st.dictionaries(TEXT, JSON, max_size=3))


def chained(records: Sequence[Record], name: str = "rollout-1") -> tuple[Entry, ...]:
    entries: list[Entry] = []
    for seq, record in enumerate(records, 1):
        entries.append(append(name, seq, record, entries[-1].hash if entries else GENESIS))
    return tuple(entries)


CHAIN = st.lists(RECORD, min_size=1, max_size=6).map(chained)


@given(CHAIN, st.data())
def test_a_whole_chain_holds_against_every_head_it_ever_had(chain: tuple[Entry, ...], data: st.DataObject) -> None:
    assert faults(chain) == ()
    assert faults(chain, head=data.draw(st.sampled_from(chain)).hash) == ()
    assert faults(chain, head=GENESIS) == ()


@given(CHAIN, st.data())
def test_a_change_anywhere_is_found(chain: tuple[Entry, ...], data: st.DataObject) -> None:
    at = data.draw(st.integers(0, len(chain) - 1))
    old = chain[at]
    new = data.draw(
        st.one_of(
            st.builds(replace, st.just(old), record=RECORD),
            st.builds(replace, st.just(old), chain=TEXT),
            st.builds(replace, st.just(old), seq=st.integers(0, 9)),
            st.builds(replace, st.just(old), prev=TEXT),
            st.builds(replace, st.just(old), hash=TEXT),
        )
    )
    damaged = (*chain[:at], new, *chain[at + 1 :])
    # The same JSON is the same entry, whatever Python calls equal (True == 1).
    same = [canonical([e.chain, e.seq, vars_of(e.record), e.prev, e.hash]) for e in (old, new)]
    assert bool(faults(damaged, head=chain[-1].hash)) == (same[0] != same[1])


def vars_of(record: Record) -> list[object]:
    return [record.at, record.actor, record.node, record.kind, record.body]


@given(CHAIN, st.data())
def test_a_deletion_anywhere_is_found_against_a_head(chain: tuple[Entry, ...], data: st.DataObject) -> None:
    at = data.draw(st.integers(0, len(chain) - 1))
    assert faults(chain[:at] + chain[at + 1 :], head=chain[-1].hash)


@given(CHAIN, st.data())
def test_a_cut_tail_is_found_against_a_head_alone(chain: tuple[Entry, ...], data: st.DataObject) -> None:
    kept = data.draw(st.integers(0, len(chain) - 1))
    assert faults(chain[:kept]) == ()
    assert faults(chain[:kept], head=chain[-1].hash)


@given(st.lists(RECORD, min_size=2, max_size=6, unique_by=lambda record: record.at).map(chained), st.data())
def test_an_exchange_of_two_entries_is_found(chain: tuple[Entry, ...], data: st.DataObject) -> None:
    at = data.draw(st.integers(0, len(chain) - 2))
    assert faults((*chain[:at], chain[at + 1], chain[at], *chain[at + 2 :]))


@given(CHAIN, RECORD)
def test_a_chain_written_anew_is_found_against_a_head(chain: tuple[Entry, ...], record: Record) -> None:
    forged = chained([*(entry.record for entry in chain[:-1]), replace(record, kind=chain[-1].record.kind + "!")])
    assert faults(forged) == ()
    assert faults(forged, head=chain[-1].hash)


@given(CHAIN)
def test_an_entry_of_another_chain_does_not_pass_for_one_of_this(chain: tuple[Entry, ...]) -> None:
    other = chained([entry.record for entry in chain], "rollout-2")
    assert all(faults([*chain[:at], other[at], *chain[at + 1 :]], head=chain[-1].hash) for at in range(len(chain)))


@given(RECORD)
def test_the_hash_is_over_the_meaning_and_not_over_the_order_of_keys(record: Record) -> None:
    turned = replace(record, body=MappingProxyType(dict(reversed(list(record.body.items())))))
    assert entry_hash("c", 1, turned, GENESIS) == entry_hash("c", 1, record, GENESIS)


@pytest.mark.parametrize("value", [0.5, [1, {"a": 0.5}], b"bytes", {"a": b""}, {1, 2}, object()])
def test_what_has_no_one_text_has_no_canonical_json(value: object) -> None:
    with pytest.raises(TypeError):
        canonical(value)
