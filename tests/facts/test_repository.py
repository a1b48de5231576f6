"""The command that reads a node's package lists, run over a folder that stands for a node's root, with the real dpkg-query and awk."""

from pathlib import Path

import pytest

from tests.facts.test_commands import facts, write

STATUS = """\
Package: {name}
Status: install ok installed
Maintainer: nobody <nobody@example.org>
Architecture: amd64
Version: {version}
Description: {name}

"""
LIST = "var/lib/apt/lists/repo.example.org_debian_Packages"


def installed(*pins: tuple[str, str]) -> str:
    return "".join(STATUS.format(name=name, version=version) for name, version in pins)


def offered(*pins: tuple[str, str]) -> str:
    return "".join(f"Package: {name}\nArchitecture: amd64\nVersion: {version}\n\n" for name, version in pins)


NODE = installed(
    ("libcuda1", "570.195.03-1"), ("nvidia-fabricmanager", "570.195.03-1"), ("nvidia-container-toolkit", "1.16.2-1")
)


@pytest.mark.lab("dpkg-query", "awk")
def test_what_lists_offer_is_told_by_version_with_the_packages_that_lack_it(tmp_path: Path) -> None:
    mine = offered(
        ("libcuda1", "570.195.03-1"), ("nvidia-fabricmanager", "570.195.03-1"), ("libcuda1", "580.95.05-1"), ("bash", "999.1-1"),
    )  # fmt: skip
    write(tmp_path, {"var/lib/dpkg/status": NODE, LIST: mine})
    assert facts("repository", tmp_path) == {
        "repository.lists": True,
        "repository[570.195.03-1].missing": (),
        "repository[580.95.05-1].missing": ("nvidia-fabricmanager",),
    }


@pytest.mark.lab("dpkg-query", "awk")
def test_a_node_without_lists_says_so_and_offers_nothing(tmp_path: Path) -> None:
    write(tmp_path, {"var/lib/dpkg/status": NODE, "var/lib/apt/lists/lock": ""})
    assert facts("repository", tmp_path) == {"repository.lists": False}


@pytest.mark.lab("dpkg-query", "awk")
def test_lists_that_know_none_of_the_drivers_packages_offer_nothing(tmp_path: Path) -> None:
    write(tmp_path, {"var/lib/dpkg/status": NODE, LIST: offered(("bash", "5.2-1"))})
    assert facts("repository", tmp_path) == {"repository.lists": True}
