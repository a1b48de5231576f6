"""Nodes that look alike are judged once, and nodes that do not never get each other's answer."""

from muster.backends.store.sqlite import open_store
from muster.model.fact import NodeFacts
from muster.model.memo import Remembered
from tests.support.values import inline, look


def judged(*looks: NodeFacts) -> tuple[list[tuple[object, ...]], int]:
    """The answers, in order, and how often it was asked."""
    store = open_store(":memory:")
    inline(store.save_facts(looks))
    asked = []

    def judge(facts: NodeFacts, _: str) -> tuple[object, ...]:
        asked.append(facts.node)
        return (facts.value("a"), facts.value("b") if facts.value("a") == "1" else None)

    remembered = Remembered(judge)
    answers = [remembered(facts, "") for facts in inline(store.facts())]
    inline(store.close())
    return answers, len(asked)


def test_what_was_not_read_makes_no_difference_and_what_was_read_does() -> None:
    looks = [look(f"n{at}", a="1", b="x", own=at) for at in range(5)]
    answers, asked = judged(*looks, look("n5", a="1", b="y"), look("n6", a="2", b="x"), look("n7", a="2", b="y"))
    assert answers == [("1", "x")] * 5 + [("1", "y"), ("2", None), ("2", None)]
    assert asked == 3


def test_yes_is_not_one_and_missing_is_not_empty() -> None:
    answers, asked = judged(look("n1", a=1), look("n2", a=True), look("n3", a=""), look("n4", other=1))
    assert [type(answer[0]).__name__ for answer in answers] == ["int", "bool", "str", "Unknown"]
    assert asked == 4
