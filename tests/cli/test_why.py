"""Laws of `muster why`: one grammar for nodes, pools, plans and rollouts, and --json is the same tree."""

import re
from collections.abc import Iterator, Mapping
from pathlib import Path

import pytest

from tests.support.desk import Desk
from tests.support.planning import NEW
from tests.support.shelf import POLICY, shelf

HALF = "6.1.0-57-amd64"


@pytest.fixture(scope="module")
def desk(tmp_path_factory: pytest.TempPathFactory) -> Desk:
    folder = tmp_path_factory.mktemp("shelf")
    made = shelf(
        folder,
        {
            "n1": {},
            "n2": {"kernel.bootable": ("6.1.0-18-amd64", HALF), f"kernel[{HALF}].headers": False},
            "n3": {"root_fs.kind": None},
        },
    )
    (folder / "fleet.yaml").write_text(POLICY.replace("{want: 570.195.03}", f"{{want: {NEW}}}"), encoding="utf-8")
    return made


def conclusions(tree: object) -> Iterator[str]:
    """Every clause of a tree as JSON, in the order in which words say it."""
    assert isinstance(tree, Mapping)
    if "conclusion" in tree:
        yield str(tree["conclusion"])
        for cause in tree["causes"]:
            yield from conclusions(cause)
    else:
        yield str(tree.get("says") or tree.get("value") or tree.get("no_candidate"))


@pytest.mark.parametrize(
    ("target", "code", "word"), [("n1", 0, "yes"), ("n2", 1, "no"), ("n3", 1, "unknown"), ("n4", 1, "unknown")]
)
def test_a_node_is_answered_by_a_word_and_a_tree(desk: Desk, target: str, code: int, word: str) -> None:
    said = desk.here("why", target, "--json")
    assert said.exit_code == code
    (answer,) = said.body["answers"]  # type: ignore[misc]
    assert (said.body["about"], answer["answer"], answer["nodes"]) == ("node", word, [target])  # type: ignore[index]


@pytest.mark.parametrize("target", ["n1", "n2", "n3", "n4", "train", "inference"])
def test_words_and_json_are_made_from_one_tree(desk: Desk, target: str) -> None:
    lines = desk.here("why", target).out
    answers = desk.here("why", target, "--json").body["answers"]
    assert isinstance(answers, list)
    for answer in answers:
        for clause in conclusions(answer["because"]):
            assert clause in lines
        for hint in answer["hints"]:
            assert f"what would help: {hint}" in lines


def test_a_refusal_names_the_policys_line_the_rule_and_what_helps(desk: Desk) -> None:
    lines = desk.here("why", "n2").out.splitlines()
    assert lines[0] == f"n2 cannot carry {NEW}"
    assert f"  because no headers for {HALF}: the module cannot be built there, and booted it has no GPUs" in lines
    assert f"    because the policy asks for pools.train.driver = {NEW} (fleet.yaml:7)" in lines
    assert f"    because the node shows kernel[{HALF}].headers = false" in lines
    assert lines[-1] == f"  what would help: install linux-headers-{HALF}, or remove that kernel"


def test_a_pool_groups_the_nodes_that_have_one_answer(desk: Desk) -> None:
    said = desk.here("why", "train", "--json")
    answers = said.body["answers"]
    assert isinstance(answers, list)
    assert [(each["nodes"], each["answer"]) for each in answers] == [(["n1"], "yes"), (["n2"], "no")]
    assert said.exit_code == 1


def test_another_driver_can_be_asked_about(desk: Desk) -> None:
    said = desk.here("why", "n1", "--not", "580.126.21")
    assert said.exit_code == 1
    assert said.out.splitlines()[0] == "n1 cannot carry 580.126.21"
    assert "what would help: the nearest known are 580.126.20, 580.126.16, 580.126.09" in said.out
    assert "what would help: newer knowledge comes with a newer release of Muster" in said.out


def test_a_text_that_is_no_driver_is_bad_input(desk: Desk) -> None:
    said = desk.here("why", "n1", "--not", "R580")
    assert said.exit_code == 3
    assert "names a branch" in said.err


def test_a_plan_is_said_in_the_same_grammar(desk: Desk) -> None:
    made = desk.here("plan", "--json")
    plan = str(made.body["id"])
    said = desk.here("why", plan, "--json")
    assert (said.exit_code, said.body["about"], said.body["target"]) == (0, "plan", plan)
    answers = said.body["answers"]
    assert isinstance(answers, list)
    (left,) = [each for each in answers if each["nodes"] == ["n2"]]
    assert any(f"no headers for {HALF}" in clause for clause in conclusions(left["because"]))
    lines = desk.here("why", plan).out
    for answer in answers:
        assert next(iter(conclusions(answer["because"]))) in lines


def test_a_pool_of_mixed_drivers_says_how_few_would_do_and_for_whom_each_is(tmp_path: Path) -> None:
    volta = {"gpu.product": "Tesla V100-SXM2-16GB", "module.nvidia.flavour": "proprietary"}
    desk = shelf(tmp_path, {"n1": {}, "n2": volta, "n3": {}})
    policy = POLICY.replace("{want: 570.195.03}", "{newest: long-term-support}")
    (tmp_path / "fleet.yaml").write_text(policy, encoding="utf-8")
    said = desk.here("why", "train")
    assert said.exit_code == 0
    assert "each class's best makes 2 drivers in the pool; 1 would do" in said.out
    assert "is for 2 nodes, and 2 of them no other of these drivers serves" in said.out
    assert "what would help: for fewer, name one: driver: {want: 580." in said.out
    assert "drivers in the pool" not in desk.here("why", "n1").out


POOL = "  train: {match: {label.role: train}, driver: {want: 570.195.03}}"


@pytest.mark.parametrize(
    ("pool", "one", "other", "why"),
    [
        ("{match: {label.role: train}, driver: {want: 470.256.02},\n    cuda: '>=13.0'}", "driver = 470.256.02",
         "cuda = >=13.0", "R470 carries CUDA up to 11.4"),
        ("{match: {label.role: train},\n    driver: {want: 615.71.10, flavour: proprietary}}", "driver = 615.71.10",
         "driver.flavour = proprietary", "there are no proprietary modules"),
        ("{match: {gpu: V100},\n    driver: {want: 590.48.01}}", "match = gpu: V100", "driver = 590.48.01",
         "R580 is the last branch that drives Volta"),
        ("{match: {gpu: V100}, driver: {branch: R580},\n    cuda: '>=13.0'}", "match = gpu: V100", "cuda = >=13.0",
         "no CUDA of that range makes code for Volta"),
    ],
)  # fmt: skip
def test_statements_of_a_pool_that_exclude_each_other_end_a_plan_with_both_and_their_lines(
    tmp_path: Path, pool: str, one: str, other: str, why: str
) -> None:
    desk = shelf(tmp_path, {})
    assert POOL in POLICY
    (tmp_path / "fleet.yaml").write_text(POLICY.replace(POOL, f"  train: {pool}"), encoding="utf-8")
    said = desk.here("plan")
    assert said.exit_code == 3
    fault = next(line for line in said.err.splitlines() if "collides" in line)
    assert re.search(r"fleet\.yaml:[78]: pools\.train\.", fault)
    assert re.search(r"collides with line [78]: pools\.train\.", fault)
    assert (f"pools.train.{one}" in fault, f"pools.train.{other}" in fault, why in fault) == (True, True, True)
    assert desk.here("plan", "--pool", "inference").exit_code != 3


def test_what_nobody_may_decide_is_no_contradiction(tmp_path: Path) -> None:
    desk = shelf(tmp_path, {})
    pool = "{match: {label.role: train}, driver: {want: 550.163.01},\n    cuda: '>=13.0'}"
    (tmp_path / "fleet.yaml").write_text(POLICY.replace(POOL, f"  train: {pool}"), encoding="utf-8")
    assert desk.here("plan").exit_code != 3


def test_a_pool_without_a_node_says_so_and_of_which_nodes_it_cannot_be_told(tmp_path: Path) -> None:
    made = shelf(tmp_path, {"n1": {"gpu.product": None}})
    policy = (tmp_path / "fleet.yaml").read_text(encoding="utf-8")
    for match, word, says in (
        ("{gpu: V100}", "unknown", "gpu.product is unknown"),
        ("{label.role: nobody}", "no", "pool spare"),
    ):
        added = f"  spare: {{match: {match}, driver: {{want: {NEW}}}}}\n"
        (tmp_path / "fleet.yaml").write_text(policy.rstrip("\n") + "\n" + added, encoding="utf-8")
        said = made.here("why", "spare")
        assert said.exit_code == 1
        assert "no node is known to be in pool spare (fleet.yaml:" in said.out
        assert says in said.out
        (answer,) = made.here("why", "spare", "--json").body["answers"]  # type: ignore[misc]
        assert answer["answer"] == word  # type: ignore[index]
