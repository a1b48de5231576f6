"""Laws of the repository that the loopback fleet installs from."""

import hashlib
import subprocess
from pathlib import Path

import pytest

from muster.loopback.packages import MEMBERS, DriverRelease, Repository, build_repository
from muster.loopback.tools import require_tools
from muster.model.errors import MissingTool


@pytest.fixture(scope="module")
def repository(tmp_path_factory: pytest.TempPathFactory) -> Repository:
    return build_repository(tmp_path_factory.mktemp("packages") / "repository")


def test_every_release_has_every_member(repository: Repository) -> None:
    built = {path.name.split("_")[0:2][0] + "=" + path.name.split("_")[1] for path in repository.folder.glob("*.deb")}
    assert built == {f"{member}={release.version}-1" for member in MEMBERS for release in repository.releases}


def test_the_same_releases_give_the_same_bytes(repository: Repository, tmp_path: Path) -> None:
    again = build_repository(tmp_path / "again")
    assert _digests(again.folder) == _digests(repository.folder)


def test_the_driver_needs_its_libraries_and_module_at_exactly_its_own_version(repository: Repository) -> None:
    deb = next(repository.folder.glob("nvidia-driver-cuda_580.95.05-1_*.deb"))
    depends = subprocess.run(["dpkg-deb", "-f", deb, "Depends"], capture_output=True, text=True, check=True).stdout
    for member in ("libcuda1", "libnvidia-ml1", "nvidia-kernel-open-dkms"):
        assert f"{member} (= 580.95.05-1)" in depends


def test_the_index_names_size_and_digest_of_each_package(repository: Repository) -> None:
    stanzas = (repository.folder / "Packages").read_text(encoding="utf-8").split("\n\n")
    assert len(stanzas) == len(MEMBERS) * len(repository.releases)
    for stanza in stanzas:
        fields = dict(line.split(": ", 1) for line in stanza.splitlines())
        data = (repository.folder / fields["Filename"]).read_bytes()
        assert fields["Size"] == str(len(data))
        assert fields["SHA256"] == hashlib.sha256(data).hexdigest()


def test_other_releases_can_be_built(tmp_path: Path) -> None:
    made = build_repository(tmp_path / "one", [DriverRelease("590.48.01")])
    assert "Version: 590.48.01-1" in (made.folder / "Packages").read_text(encoding="utf-8")


def test_a_machine_without_the_tools_is_told_which_and_how_to_get_them(tmp_path: Path) -> None:
    with pytest.raises(MissingTool) as refused:
        require_tools(path=str(tmp_path))
    assert "apt-get" in refused.value.message
    assert "dpkg-deb" in refused.value.message
    assert "sudo apt-get install" in (refused.value.hint or "")


def _digests(folder: Path) -> dict[str, str]:
    return {path.name: hashlib.sha256(path.read_bytes()).hexdigest() for path in folder.iterdir()}
