"""The whole path on loopback nodes. Each module makes one small fleet and goes through one story; its tests say what must hold of it."""

import pytest


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Tests of one module share a fleet: with xdist they belong on one worker."""
    for item in items:
        if "tests/path/" in item.nodeid:
            item.add_marker(pytest.mark.xdist_group(item.nodeid.partition("::")[0]))
