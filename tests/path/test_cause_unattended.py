"""The real unattended-upgrades, in a root of its own, upgrades a library alone; its logs are read where they lie and name it."""

import os
import subprocess
from collections.abc import Iterator, Mapping
from pathlib import Path

import pytest

from muster.discovery import discover
from muster.health.consistency import check
from muster.health.judgement import Subject
from muster.loopback.packages import DriverRelease, build_repository
from muster.loopback.tools import SYSTEM_PATH
from muster.model.fact import FactSpec, FactValue, RawOutput
from muster.node.collect import parse_frames, render
from tests.support.planning import NEW, OLD, seen
from tests.support.values import T0

NONCE = "abcdefgh12345678"
LIMIT_S = 600
CONFIG = """\
APT::Periodic::Update-Package-Lists "1";
APT::Periodic::Unattended-Upgrade "1";
Unattended-Upgrade::Origins-Pattern {"site=*";};
"""

pytestmark = [pytest.mark.slow, pytest.mark.lab("debootstrap", "chroot", "apt-get")]


def ran(*argv: str, stdin: str = "") -> bytes:
    own = {key: value for key, value in os.environ.items() if key.lower().endswith("_proxy")}
    environment = {**own, "PATH": SYSTEM_PATH, "HOME": "/root", "LC_ALL": "C", "DEBIAN_FRONTEND": "noninteractive"}
    done = subprocess.run(argv, input=stdin.encode(), capture_output=True, env=environment, timeout=LIMIT_S)
    assert done.returncode == 0, (argv, done.stdout[-2000:], done.stderr[-2000:])
    return done.stdout


def mirror() -> tuple[str, str]:
    """(suite, address) of this machine's own package sources, as apt has them; skips by name where there is none."""
    targets = ran("apt-get", "indextargets", "--format", "$(CODENAME) $(COMPONENT) $(REPO_URI)", "Created-By: Packages")
    for line in targets.decode().splitlines():
        suite, component, address = line.split(" ", 2)
        if component == "main" and "-" not in suite and "security" not in address:
            return suite, address
    pytest.skip("needs a package source of this machine's own release")


@pytest.fixture(scope="module")
def facts(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Mapping[str, FactValue]]:
    root = tmp_path_factory.mktemp("unattended") / "root"
    suite, address = mirror()
    proxy = ran("apt-config", "shell", "http_proxy", "Acquire::http::Proxy").decode().strip()
    export = f"{proxy}; export http_proxy; " if proxy else ""
    make = f'debootstrap --variant=minbase --include=unattended-upgrades {suite} "{root}" "{address}"'
    ran("sh", "-c", export + make)
    repository = build_repository(root / "srv/repository", [DriverRelease(OLD), DriverRelease(NEW)])
    source = repository.source_line.replace(str(root), "")
    (root / "etc/apt/sources.list").write_text(source, encoding="utf-8")
    (root / "etc/apt/apt.conf.d/99site").write_text(CONFIG, encoding="utf-8")
    inside = ("chroot", str(root))
    ran(*inside, "apt-get", "-q", "update")
    ran(*inside, "apt-get", "-q", "-y", "install", f"libcuda1={OLD}-1", f"libnvidia-ml1={OLD}-1")
    ran(*inside, "unattended-upgrade", "-v")
    specs = [spec for spec in discover("muster.facts", "FACT").values() if isinstance(spec, FactSpec)]
    script = render([(s.name, s.command, s.deadline_s, s.cap_bytes) for s in specs], NONCE)
    frames = parse_frames(ran(*inside, "sh", "-s", stdin=script), NONCE)
    found: dict[str, FactValue] = {}
    for spec in specs:
        frame = frames[spec.name]
        found |= spec.parse(RawOutput(frame.exit_status, frame.stdout, frame.truncated))
    found["root"] = str(root)
    yield found


def test_the_real_unattended_upgrade_is_named_with_package_time_and_log_line(facts: Mapping[str, FactValue]) -> None:
    told = {path: value for path, value in facts.items() if path.startswith(("transaction", "library."))}
    assert told["library.libcuda.version"] == NEW
    findings = check([Subject("n1", "train", seen("n1", told), OLD, holds=False)], T0)
    cause = next(each.cause for each in findings if each.code == "library-is-not-loaded")
    assert f" {OLD}-1 -> {NEW}-1" in cause
    assert "by unattended-upgrades, at 20" in cause
    place, _, words = cause.partition("[")[2].partition(": ")
    log, _, number = place.partition(":")
    line = (Path(str(facts["root"])) / "var/log" / log).read_text(encoding="utf-8").splitlines()[int(number) - 1]
    assert line.startswith("Upgrade: ")
    assert words.removeprefix("Upgrade: ").partition(" ")[0] in line


def test_that_node_upgrades_itself(facts: Mapping[str, FactValue]) -> None:
    assert (facts["upgrades.automatic"], facts["upgrades.unattended_upgrade"]) == (True, "1")
