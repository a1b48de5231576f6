"""Package versions sort exactly as the package managers themselves say."""

import random
import shutil
import subprocess
from collections.abc import Callable

import pytest

from muster.model.versions import DebVersion, RpmVersion

Pair = tuple[str, str]

# The hard known cases: tilde, letters against signs, leading zeros, epochs, missing and zero revisions, empty numbers,
# and the versions this project meets.
DEB_CASES: list[Pair] = [
    ("1.0~rc1", "1.0"),
    ("1.0~~", "1.0~"),
    ("1.0~~a", "1.0~"),
    ("1.0~", "1.0"),
    ("1.0", "1.0a"),
    ("1.0a", "1.0+"),
    ("1.0+", "1.0."),
    ("1.0-1", "1.0-1~deb12u1"),
    ("1.0-1+b1", "1.0-1"),
    ("1.0", "1.0-0"),
    ("1.0-0", "1.0-00"),
    ("1.0-~", "1.0"),
    ("1.0-0~", "1.0"),
    ("0:1.0", "1.0"),
    ("1:1.0", "2.0"),
    ("1.010", "1.10"),
    ("1.00", "1.0"),
    ("1.", "1.0"),
    ("1.a", "1.a0"),
    ("1.a0~", "1.a"),
    ("1a0a", "1aa"),
    ("1-1-1", "1-1"),
    ("1:1:1", "1:1"),
    ("0", "0~"),
    ("a", "0a"),
    ("a", "A"),
    ("1.99999999999999999999", "1.100000000000000000000"),
    ("580.126.20-1", "580.126.20-1+site1"),
    ("580.126.20-1+site2", "580.126.20-1+site10"),
    ("535.261.03-1", "535.261.03-1~deb12u1"),
    ("550.163.01-0ubuntu0.24.04.2", "550.163.01-0ubuntu0.24.04.10"),
    ("535.104.05-1", "535.104.5-1"),
    ("550.90.07-1", "550.100-1"),
    ("450.51-1", "450.51.05-1"),
]

RPM_CASES: list[Pair] = [
    ("1.0~rc1", "1.0"),
    ("1.0~", "1.0~~"),
    ("1.0^", "1.0"),
    ("1.0^", "1.0.1"),
    ("1.0^git1", "1.0^git1~pre"),
    ("1.0~rc1^git1", "1.0~rc1"),
    ("1.0^~", "1.0^"),
    ("1.0~^", "1.0~"),
    ("1.0a", "1.0.a"),
    ("1.0a", "1.0.1"),
    ("1.0", "1.0a"),
    ("1.0.", "1.0"),
    ("1_0", "1.0"),
    ("..", "_"),
    ("1.05", "1.5"),
    ("1.0", "1.00"),
    ("a", "A"),
    ("a", "ab"),
    ("2a", "2.0"),
    ("10xyz", "10.1xyz"),
    ("99999999999999999999", "100000000000000000000"),
    ("580.126.20", "580.126.9"),
    ("427.13.1.el9_4", "427.el9"),
    ("1.el9", "1.amzn2023"),
]


def shuffled_pairs(signs: str, count: int, legal: Callable[[str], bool]) -> list[Pair]:
    """Random pairs that are often near each other: independent texts would differ in their first character."""
    rng = random.Random(20261130)
    pairs: list[Pair] = []
    while len(pairs) < count:
        a = "".join(rng.choices(signs, k=rng.randint(1, 8)))
        place = rng.randint(0, len(a))
        b = a[:place] + "".join(rng.choices(signs, k=rng.randint(0, 3))) + a[place + rng.randint(0, 1) :]
        if legal(a) and legal(b):
            pairs.append((a, b))
    return pairs


def sign(a: DebVersion | RpmVersion, b: DebVersion | RpmVersion) -> str:
    return "lt" if a < b else "gt" if a > b else "eq"  # type: ignore[operator]


def is_legal_deb(text: str) -> bool:
    return text[:1].isdigit() and not text.endswith("-")


DPKG_LOOP = """
while read -r a b; do
  if dpkg --compare-versions "$a" lt "$b"; then echo lt
  elif dpkg --compare-versions "$a" eq "$b"; then echo eq
  else echo gt; fi
done
"""


@pytest.mark.skipif(shutil.which("dpkg") is None, reason="dpkg is not on this machine")
def test_deb_versions_sort_as_dpkg_says() -> None:
    pairs = DEB_CASES + shuffled_pairs("0019aZ~~+.-", 800, is_legal_deb)
    done = subprocess.run(
        ["sh", "-c", DPKG_LOOP],
        input="".join(f"{a} {b}\n" for a, b in pairs),
        capture_output=True,
        text=True,
        check=True,
        timeout=60,
    )
    assert "error" not in done.stderr
    ours = [sign(DebVersion.parse(a), DebVersion.parse(b)) for a, b in pairs]
    wrong = [row for row in zip(pairs, ours, done.stdout.split(), strict=True) if row[1] != row[2]]
    assert not wrong


@pytest.mark.skipif(shutil.which("dpkg-query") is None, reason="dpkg-query is not on this machine")
def test_every_package_version_installed_here_is_read_and_kept() -> None:
    done = subprocess.run(["dpkg-query", "-W", "-f", "${Version}\\n"], capture_output=True, text=True, check=True)
    assert [str(DebVersion.parse(text)) for text in done.stdout.split()] == done.stdout.split()


def ask_rpm(function: str, pairs: list[Pair]) -> list[str]:
    """rpm's own answers, from one process per 500 pairs: a macro has a bounded length."""
    answers: list[str] = []
    for start in range(0, len(pairs), 500):
        rows = ",".join(f'{{"{a}","{b}"}}' for a, b in pairs[start : start + 500])
        script = f"%{{lua: local f = {function}; for _, p in ipairs({{{rows}}}) do print(f(p[1], p[2]) .. ' ') end}}"
        done = subprocess.run(["rpm", "--eval", script], capture_output=True, text=True, check=True, timeout=60)
        answers += [{"-1": "lt", "0": "eq", "1": "gt"}[answer] for answer in done.stdout.split()]
    return answers


needs_rpm = pytest.mark.skipif(shutil.which("rpm") is None, reason="rpm is not on this machine")


@pytest.mark.lab
@needs_rpm
def test_rpm_versions_sort_as_rpmvercmp_says() -> None:
    pairs = RPM_CASES + shuffled_pairs("0019abZ~^._", 3000, bool)
    ours = [sign(RpmVersion.parse(a), RpmVersion.parse(b)) for a, b in pairs]
    wrong = [row for row in zip(pairs, ours, ask_rpm("rpm.vercmp", pairs), strict=True) if row[1] != row[2]]
    assert not wrong


@pytest.mark.lab
@needs_rpm
def test_whole_rpm_versions_with_epoch_and_release_sort_as_rpm_says() -> None:
    rng = random.Random(20261130)

    def whole() -> str:
        release = rng.choice(["", "-0", "-1", "-1.el9", "-1~", "-1^a"])
        return rng.choice(["", "0:", "1:", "01:"]) + rng.choice(["1.0", "1.00", "1.0~a", "1.0^a", "2"]) + release

    pairs = [(whole(), whole()) for _ in range(1000)]
    compare = "function(a, b) a, b = rpm.ver(a), rpm.ver(b); return a < b and -1 or (a == b and 0 or 1) end"
    ours = [sign(RpmVersion.parse(a), RpmVersion.parse(b)) for a, b in pairs]
    wrong = [row for row in zip(pairs, ours, ask_rpm(compare, pairs), strict=True) if row[1] != row[2]]
    assert not wrong
