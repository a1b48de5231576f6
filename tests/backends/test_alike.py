"""Nodes that look alike are judged once, and nodes that do not never get each other's answer."""

from typing import Any

from muster.backends.store.sqlite import open_store
from muster.model.fact import Fact, FactValue, NodeFacts
from muster.model.memo import Remembered
from tests.support.values import inline, later, look


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


def test_what_is_each_nodes_own_is_never_anothers_answer_and_other_lists_do_not_part_alike_nodes() -> None:
    def seen(at: int, gpu: str, package: str) -> NodeFacts:
        values: dict[str, FactValue] = {
            f"gpu[GPU-{gpu}].serial": f"16{gpu}", f"gpu[GPU-{gpu}].ecc": "on", "gpu.count": 1, "machine.id": f"{at}",
            f"package[{package}].version": "1", "driver": "570",
        }  # fmt: skip
        facts = {path: Fact(path, value, path.partition("[")[0], later(0)) for path, value in values.items()}
        return NodeFacts(f"n{at}", later(0), facts)

    store = open_store(":memory:")
    inline(store.save_facts([seen(1, "a", "x"), seen(2, "b", "x"), seen(3, "b", "y")]))
    looks = inline(store.facts())
    inline(store.close())
    for reads, expected, most in (
        (lambda f: f.text("machine.id"), ["1", "2", "3"], 3),
        (lambda f: f.members("gpu"), [("GPU-a",), ("GPU-b",), ("GPU-b",)], 3),
        (lambda f: dict(f.column("gpu", ".serial")), [{"GPU-a": "16a"}, {"GPU-b": "16b"}, {"GPU-b": "16b"}], 3),
        (lambda f: f.text("gpu[GPU-a].ecc"), ["on", None, None], 3),
        (lambda f: (f.text("driver"), f.value("gpu.count")), [("570", 1)] * 3, 1),
        (lambda f: f.members("package"), [("x",), ("x",), ("y",)], 2),
        (lambda f: f.text("nowhere"), [None] * 3, 1),
    ):
        asked: list[str] = []

        def judge(facts: NodeFacts, _: str, reads: Any = reads, asked: list[str] = asked) -> object:
            asked.append(facts.node)
            return reads(facts)

        remembered = Remembered(judge)
        assert [remembered(facts, "") for facts in looks] == expected
        assert len(asked) <= most
