"""A pool's kernel: both keys, never without a driver, and never a text that is no kernel."""

import pytest

from muster.model.errors import DocumentFaults
from muster.planner.policy import policy_from_document

TEXT = """\
schema: 1
fleet: lab
inventory: [{local: true}]
pools:
  all:
    match: {gpu: H100}
    driver: {branch: R580}
    kernel: {want: 6.8.0-49-generic, package: 6.8.0-49.49}
"""


def test_a_kernel_is_read_with_the_version_of_its_packages() -> None:
    (pool,) = policy_from_document(TEXT, "fleet.yaml").pools
    assert pool.kernel is not None
    assert (pool.kernel.want.text, pool.kernel.package) == ("6.8.0-49-generic", "6.8.0-49.49")


@pytest.mark.parametrize(
    ("old", "new", "line", "words"),
    [
        ("6.8.0-49-generic", "newest", 8, "kernel"),
        ("package: 6.8.0-49.49", "package: '; rm -rf /'", 8, "no version of a package"),
        (", package: 6.8.0-49.49", "", 8, "package"),
        ("    driver: {branch: R580}\n", "", 7, "no driver"),
    ],
)
def test_a_wish_that_cannot_be_kept_is_refused_with_its_line(old: str, new: str, line: int, words: str) -> None:
    assert old in TEXT
    with pytest.raises(DocumentFaults) as raised:
        policy_from_document(TEXT.replace(old, new), "fleet.yaml")
    assert any(fault.startswith(f"fleet.yaml:{line}:") and words in fault for fault in raised.value.faults), (
        raised.value.faults
    )
