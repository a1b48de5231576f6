"""The reference page of fleet.yaml says what the code reads: every key, and examples that parse."""

import re
from pathlib import Path

import pytest

from muster.model.errors import DocumentFaults
from muster.planner.policy import policy_from_document

PAGE = (Path(__file__).parents[2] / "docs" / "reference" / "fleet-yaml.md").read_text()
HEAD = "schema: 1\nfleet: lab\ninventory: [{local: true}]\n"
POOL = "pools: {all: {match: {gpu: '*'}}}\n"
# Heading of the page -> a policy with a key there that is like no other; the refusal lists what is known.
ODD = {
    "Top level": f"{HEAD}{POOL}0000000000: x\n",
    "`ssh`": f"{HEAD}{POOL}ssh: {{0000000000: x}}\n",
    "A pool": f"{HEAD}pools: {{all: {{match: {{gpu: '*'}}, 0000000000: x}}}}\n",
    "`driver`": f"{HEAD}pools: {{all: {{match: {{gpu: '*'}}, driver: {{branch: R580, 0000000000: x}}}}}}\n",
    "`kernel`": f"{HEAD}pools: {{all: {{match: {{gpu: '*'}}, driver: {{branch: R580}},"
    " kernel: {want: 6.1.0-18, package: 6.1, 0000000000: x}}}\n",
    "`drain`": f"{HEAD}pools: {{all: {{match: {{gpu: '*'}}, drain: {{policy: wait, 0000000000: x}}}}}}\n",
    "`max_unavailable`": f"{HEAD}pools: {{all: {{match: {{gpu: '*'}}, max_unavailable: {{0000000000: x}}}}}}\n",
    "`rollout`": f"{HEAD}{POOL}rollout: {{0000000000: x}}\n",
    "`soak`": f"{HEAD}{POOL}rollout: {{soak: {{0000000000: x}}}}\n",
    "`holds`": f"{HEAD}{POOL}holds: {{0000000000: x}}\n",
    "`packages`": f"{HEAD}{POOL}packages: {{0000000000: x}}\n",
    "`security`": f"{HEAD}{POOL}security: {{0000000000: x}}\n",
    "`validate`": f"{HEAD}{POOL}validate: {{0000000000: x}}\n",
    "`inventory`": f"schema: 1\nfleet: lab\ninventory: [{{0000000000: x}}]\n{POOL}",
}


@pytest.mark.parametrize("heading", ODD)
def test_the_page_lists_exactly_the_keys_that_are_read(heading: str) -> None:
    with pytest.raises(DocumentFaults, match="0000000000") as raised:
        policy_from_document(ODD[heading], "fleet.yaml")
    (fault,) = raised.value.faults
    known = fault[fault.index("(one of ") + len("(one of ") : -1].split(", ")
    section = PAGE.split(f"\n### {heading}\n")[1].split("\n### ")[0]
    assert sorted(re.findall(r"^\| `([a-z_]+)", section, re.MULTILINE)) == sorted(known)


def test_the_examples_of_the_page_are_read() -> None:
    examples = re.findall(r"^```yaml\n(.*?)^```", PAGE, re.MULTILINE | re.DOTALL)
    assert [policy_from_document(text, "fleet.yaml").fleet for text in examples] == ["prod-eu", "lab"]
