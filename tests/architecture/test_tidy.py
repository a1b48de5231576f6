"""What no linter says: small files, no address of a package index, no path of one machine, locks that are locked."""

from __future__ import annotations

import re
import tomllib
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
PARTS = (".ci", "bench", "docs", "lab", "requirements", "scripts", "src", "tests")
CODE = ("", ".py", ".sh")

# The longest file a reader should have to hold in mind; data, locks and recorded outputs are not read through.
LINES_MAX = 600
# Put together from halves, so that this file does not itself name what it looks for.
INDEX_HOSTS = tuple(
    a + b for a, b in (("py", "pi.org"), ("python", "hosted.org"), ("deb.", "debian.org"), ("archive.", "ubuntu.com"))
)
MACHINE_PATH = re.compile(r"(?<![\w$}.>])/(?:home|Users|work|root|mnt)/\w")
PIN = re.compile(r"^[a-z0-9][a-z0-9._-]*==\S+( ; [^\\]+)? \\$")
HASH = re.compile(r"^    --hash=sha256:[0-9a-f]{64}( \\)?$")


def committed_text() -> Iterator[tuple[Path, str]]:
    """Every text file of the repository, without asking git: a copy without `.git` is tested too."""
    for part in PARTS:
        for path in sorted((ROOT / part).rglob("*")):
            if (
                path.is_file()
                and "__pycache__" not in path.parts
                and path.suffix not in {".pyc", ".gz", ".zst", ".deb"}
            ):
                yield path.relative_to(ROOT), path.read_text(encoding="utf-8", errors="replace")
    for path in sorted(ROOT.glob("*.*")):
        if path.is_file():
            yield path.relative_to(ROOT), path.read_text(encoding="utf-8", errors="replace")


def test_no_source_file_is_longer_than_a_reader_can_hold() -> None:
    long = {
        str(path): lines
        for path, text in committed_text()
        if path.suffix in CODE and "fixtures" not in path.parts and (lines := text.count("\n")) > LINES_MAX
    }
    assert long == {}


def test_no_file_names_a_package_index() -> None:
    named = {(str(path), host) for path, text in committed_text() for host in INDEX_HOSTS if host in text}
    assert named == set()


def test_no_source_file_names_a_path_of_one_machine() -> None:
    # scripts/fresh-root speaks of homes, but of those in the machine that it makes; a capture is what another machine printed.
    named = {
        (str(path), found.group())
        for path, text in committed_text()
        if path.parts[0] in {"src", "scripts", "bench", "lab", ".ci"}
        and path.suffix in CODE
        and path.name != "fresh-root"
        and "captures" not in path.parts
        and (found := MACHINE_PATH.search(text))
    }
    assert named == set()


def test_only_control_and_the_simulator_have_a_bootstrap() -> None:
    """R3 lets any `muster.*.bootstrap` name backends; this keeps the star to the two that are meant."""
    found = {path.parent.name for path in (ROOT / "src/muster").rglob("bootstrap*.py")}
    assert found <= {"control", "sim"}


@pytest.mark.parametrize("name", ["runtime", "build", "dev"])
def test_a_lock_is_pinned_and_hashed_and_has_no_options(name: str) -> None:
    lines = (ROOT / f"requirements/{name}.txt").read_text(encoding="utf-8").splitlines()
    assert [line for line in lines if not PIN.match(line) and not HASH.match(line)] == []
    pins = [n for n, line in enumerate(lines) if PIN.match(line)]
    assert pins
    assert all(HASH.match(lines[n + 1]) for n in pins)


def pins(name: str) -> dict[str, str]:
    lines = (ROOT / f"requirements/{name}.txt").read_text(encoding="utf-8").splitlines()
    return dict(line.split(" ")[0].split("==") for line in lines if PIN.match(line))


@pytest.mark.parametrize("name", ["runtime", "build"])
def test_the_smaller_locks_are_parts_of_the_one_for_tests(name: str) -> None:
    assert pins(name).items() <= pins("dev").items()


def test_every_dependency_has_its_line_of_reason_and_no_other_has_one() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    named = [*project["project"]["dependencies"], *project["dependency-groups"]["dev"]]
    declared = {re.split(r"[<>=!~ ;\[]", requirement)[0] for requirement in named}
    reasons = (ROOT / "docs/adr/0002-dependencies.md").read_text(encoding="utf-8")
    given = set(re.findall(r"^\| ([\w-]+) \|", reasons, re.MULTILINE)) - {"package"}
    assert given == declared


def test_every_rule_of_the_linter_stands_in_the_decision() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    rules = {contract["name"].split(" ")[0] for contract in project["tool"]["importlinter"]["contracts"]}
    decision = (ROOT / "docs/adr/0001-the-shape.md").read_text(encoding="utf-8")
    rows = [line for line in decision.splitlines() if line.startswith("| R")]
    assert {rule for row in rows for rule in re.findall(r"R\d[a-z]?", row.split("|")[1])} == rules | {"R8"}
