"""Where the policy lies, and what is said when it cannot be read."""

from pathlib import Path

import pytest

from muster.control.bootstrap import package_managers
from muster.control.policy import find_policy, read_policy
from muster.documents import MAX_BYTES
from muster.model.errors import BadInput, DocumentFaults
from muster.model.stack import PackagePin
from muster.ports import PackageInstalls

SCENARIOS = Path(__file__).parent.parent / "scenarios" / "policy"


def test_the_file_named_on_the_command_line_wins(tmp_path: Path) -> None:
    (tmp_path / "fleet.yaml").touch()
    assert find_policy("a.yaml", {"MUSTER_FLEET": "b.yaml"}, tmp_path) == Path("a.yaml")
    assert find_policy(None, {"MUSTER_FLEET": "b.yaml"}, tmp_path) == Path("b.yaml")
    assert find_policy(None, {}, tmp_path) == tmp_path / "fleet.yaml"


def test_a_policy_is_read_from_its_file() -> None:
    assert read_policy(SCENARIOS / "worked_example.yaml").fleet == "prod-eu"


def test_a_missing_file_is_named_with_a_way_on(tmp_path: Path) -> None:
    with pytest.raises(DocumentFaults, match=r"none\.yaml:1: cannot be read: No such file.*--fleet"):
        read_policy(tmp_path / "none.yaml")
    with pytest.raises(DocumentFaults, match="cannot be read: Is a directory"):
        read_policy(tmp_path)


def test_a_file_that_is_not_text_is_refused_at_its_line(tmp_path: Path) -> None:
    (tmp_path / "fleet.yaml").write_bytes(b"schema: 1\nfleet: \xff\xfe\n")
    with pytest.raises(DocumentFaults, match=r"fleet\.yaml:2: the file is not text in UTF-8"):
        read_policy(tmp_path / "fleet.yaml")


def test_an_endless_file_is_not_read_for_ever() -> None:
    with pytest.raises(DocumentFaults, match=f"at most {MAX_BYTES} are read|character"):
        read_policy(Path("/dev/zero"))


def test_an_unknown_time_zone_is_refused_with_the_nearest(tmp_path: Path) -> None:
    text = (SCENARIOS / "worked_example.yaml").read_text()
    (tmp_path / "fleet.yaml").write_text(text.replace("Europe/Berlin", "Europe/Belrin"))
    line = next(number for number, line in enumerate(text.splitlines(), 1) if "windows:" in line)
    with pytest.raises(DocumentFaults, match=rf"fleet\.yaml:{line}: .*'Europe/Belrin' is not known; .*Europe/Berlin"):
        read_policy(tmp_path / "fleet.yaml")


def test_an_unknown_gpu_family_is_refused_with_the_nearest(tmp_path: Path) -> None:
    text = (SCENARIOS / "worked_example.yaml").read_text()
    (tmp_path / "fleet.yaml").write_text(text.replace("gpu: H100", "gpu: [A100, H10O]"))
    with pytest.raises(DocumentFaults, match=r"pool train: match gpu: 'H10O' is no GPU family .*H100") as raised:
        read_policy(tmp_path / "fleet.yaml")
    assert len(raised.value.faults) == 1


def test_any_gpu_can_be_meant(tmp_path: Path) -> None:
    text = (SCENARIOS / "worked_example.yaml").read_text()
    (tmp_path / "fleet.yaml").write_text(text.replace("gpu: H100", 'gpu: "*"'))
    assert read_policy(tmp_path / "fleet.yaml").pools[0].match[0].values == ("*",)


REPOSITORY = 'packages: {repository: {source: "deb https://repository.invalid/debian12 ./", key: nvidia.asc}}\n'
ARMOURED = "-----BEGIN PGP PUBLIC KEY BLOCK-----\n\nmDME\n-----END PGP PUBLIC KEY BLOCK-----\n"


def test_the_repositorys_key_is_read_from_beside_the_policy_and_must_be_one(tmp_path: Path) -> None:
    text = (SCENARIOS / "worked_example.yaml").read_text() + REPOSITORY
    (tmp_path / "fleet.yaml").write_text(text)
    policy = read_policy(tmp_path / "fleet.yaml")
    with pytest.raises(BadInput, match=r"key .*nvidia\.asc: .*No such file"):
        package_managers(policy, tmp_path)
    (tmp_path / "nvidia.asc").write_text("mDME: not armoured")
    with pytest.raises(BadInput, match=r"nvidia\.asc is no armoured public key"):
        package_managers(policy, tmp_path)
    (tmp_path / "nvidia.asc").write_text(ARMOURED)
    apt = package_managers(policy, tmp_path)["apt"]
    assert isinstance(apt, PackageInstalls)
    assert ARMOURED in apt.first_install((PackagePin("nvidia-driver", "1-1"),))
    assert "deb https://repository.invalid/debian12 ./" in apt.tells()[0]


@pytest.mark.parametrize(
    "source",
    ["deb [trusted=yes] https://x.invalid/ ./", "https://x.invalid/", "deb https://x.invalid/ ./; rm -rf /", "deb"],
)
def test_a_source_that_is_none_or_brings_options_is_refused(tmp_path: Path, source: str) -> None:
    text = (SCENARIOS / "worked_example.yaml").read_text() + REPOSITORY.replace(
        "deb https://repository.invalid/debian12 ./", source
    )
    (tmp_path / "fleet.yaml").write_text(text)
    with pytest.raises(DocumentFaults, match="is no line of an apt source without options"):
        read_policy(tmp_path / "fleet.yaml")
