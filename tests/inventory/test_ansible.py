"""An Ansible inventory means here what it means to Ansible; what is not read is left out under its name, and secrets are never shown."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from muster.backends.inventory import ansible
from muster.model.errors import BadInput, DocumentFaults
from muster.model.inventory import Listing
from muster.model.node import Via

CASES = {
    path.name: path
    for path in sorted((Path(__file__).parent.parent / "fixtures" / "inventory" / "ansible").iterdir())
    if path.is_dir()
}


def source_of(case: Path) -> Path:
    (found,) = (path for path in case.iterdir() if path.name not in ("expected.json", "group_vars", "host_vars"))
    return found


def groups_above(host: str, theirs: Mapping[str, Any]) -> set[str]:
    """The groups of a host by Ansible's own answer, with those above."""
    found = {name for name, group in theirs.items() if host in group.get("hosts", ())}
    while True:
        more = found | {name for name, group in theirs.items() if found & set(group.get("children", ()))}
        if more == found:
            return found - {"all", "ungrouped"}
        found = more


def same(text: str | None, value: object) -> bool:
    """Whether our text is Ansible's value: numbers and truths as written, and no label for what is no short text."""
    match value:
        case bool():
            return text is not None and text.lower() in (("true", "yes") if value else ("false", "no"))
        case int():
            return text is not None and int(text.replace("_", ""), 0) == value
        case float():
            return text is not None and float(text) == value
        case str():
            return text is None if "{" in value or "\n" in value else text == value
        case _:
            return text is None


@pytest.mark.parametrize("case", CASES)
def test_an_inventory_is_read_as_ansible_reads_it(case: str) -> None:
    theirs = json.loads((CASES[case] / "expected.json").read_text())
    values = theirs.pop("_meta")["hostvars"]
    nodes = {node.name: node for node in ansible.read(source_of(CASES[case])).nodes}
    assert set(nodes) == {host for group in theirs.values() for host in group.get("hosts", ())}
    for name, node in nodes.items():
        labels = dict(node.labels)
        assert {key[6:] for key in list(labels) if key.startswith("group.") and labels.pop(key)} == groups_above(
            name, theirs
        )
        told = values.get(name, {})
        assert node.port == (int(told["ansible_port"]) if "ansible_port" in told else None)
        assert (node.address, node.user) == (told.get("ansible_host", name), told.get("ansible_user"))
        plain = {key: value for key, value in told.items() if not key.startswith("ansible_")}
        assert {key: (labels.get(key), value) for key, value in plain.items() if not same(labels.get(key), value)} == {}
        assert set(labels) <= set(plain)


@pytest.mark.parametrize("case", CASES)
def test_what_ansible_itself_prints_of_an_inventory_is_an_inventory(case: str, tmp_path: Path) -> None:
    (tmp_path / "inventory.json").write_text((CASES[case] / "expected.json").read_text())
    ours, theirs = ansible.read(source_of(CASES[case])).nodes, ansible.read(tmp_path / "inventory.json").nodes
    assert [(node.name, node.address, node.port, node.user) for node in ours] == [
        (n.name, n.address, n.port, n.user) for n in theirs
    ]
    groups = [{key for key in node.labels if key.startswith("group.")} for node in ours]
    assert groups == [{key for key in node.labels if key.startswith("group.")} for node in theirs]


@pytest.mark.parametrize(
    ("text", "faults"),
    [
        ("[web\nh1\n", ["1: '[web' is not a section"]),
        ("[we b]\nh\n", ["1: '[we b]' is not a section"]),
        ("[a:nonsense]\nx y\n[b]\nh", ["1: [a:nonsense]: a section is"]),
        ("[a:children]\nmissing\n", ["2: [a:children]: there is no group missing"]),
        ("[a:vars]\nx=1\n[b]\nh", ["1: [a:vars]: there is no group a"]),
        ("h1 nonsense\nh2 'open\n", ["1: 'nonsense' is not `name=value`", "2: cannot be read: No closing quotation"]),
        (
            "h[3:1]\nh[01:100]\nh[a]\nh[0:999999999]",
            ["1: [3:1] ends before", "2: [01:100] begins with zeros", "4: [0:999999999] names more"],
        ),
        ("h ansible_port=ssh", ["1: ansible_port ssh of h is not a port"]),
        ("h:", ["1: h: ends in a colon"]),
        ("[a]\nh\n[a:children]\nb\n[b:children]\na\n", ["1: the groups a, b stand under each other in a ring"]),
        ("# nothing\n", ["1: names no host"]),
    ],
)
def test_every_fault_of_an_ini_file_is_told_with_its_line(text: str, faults: list[str]) -> None:
    with pytest.raises(DocumentFaults) as told:
        ansible.from_text(text, "inv")
    assert len(told.value.faults) == len(faults)
    for line, begins in zip(told.value.faults, faults, strict=True):
        assert line.startswith(f"inv:{begins}")


@pytest.mark.parametrize(
    ("text", "begins"),
    [
        ("all:\n  hosts: [a, {b: 1}]\n", "inv:2: hosts of group all is a list of names"),
        ("all: {hosts: {h: }}\n  bad", "inv:2: is not YAML"),
        ("plugin: aws_ec2\n", "inv:1: is the configuration of a dynamic inventory"),
        ("- a\n", "inv:1: is not a mapping"),
        ("", "inv:1: is empty"),
        ("all: {hosts: {'n[1:3': , 'm[9:1]': }}", "inv:1: [9:1] ends before"),
        ("a: {children: {b: {children: {a: }}}, hosts: {h: }}", "inv:1: the groups a, b stand under each other"),
        ("x: &x\n  children:\n    y: *x\n  hosts: {h: }", "inv:1: group y stands under itself"),
    ],
)  # fmt: skip
def test_a_fault_of_a_yaml_inventory_is_told_with_its_line(text: str, begins: str) -> None:
    with pytest.raises(DocumentFaults) as told:
        ansible.from_yaml(text, "inv")
    assert any(line.startswith(begins) for line in told.value.faults), told.value.faults


SECRET = "6162636465666768"


def test_what_a_vault_holds_is_named_left_out_and_never_shown(tmp_path: Path) -> None:
    (tmp_path / "group_vars").mkdir()
    (tmp_path / "host_vars").mkdir()
    vault = f"$ANSIBLE_VAULT;1.1;AES256\n{SECRET}\n"
    indented = vault.replace("\n", "\n      ").rstrip()
    (tmp_path / "hosts.yml").write_text(
        f"all:\n  hosts:\n    h:\n      ansible_user: !vault |\n        {vault.splitlines()[0]}\n        {SECRET}\n      role: a\n"
        "  vars: {top: 1, bmc: x}\n"
    )
    (tmp_path / "group_vars" / "all.yml").write_text(f"bmc: !vault |\n      {indented}\nplain: yes\n")
    (tmp_path / "host_vars" / "h").write_text(vault)
    found = ansible.read(tmp_path / "hosts.yml")
    (node,) = found.nodes
    assert (node.user, dict(node.labels)) == (None, {"role": "a", "top": "1", "plain": "yes"})
    assert [warning.rpartition("/")[2].partition(":")[0] for warning in found.warnings] == [
        "hosts.yml",
        "all.yml",
        "h",
        "hosts.yml",
    ]
    assert "ansible_user of h is a vault" in found.warnings[-1]
    assert SECRET not in repr(found)
    (tmp_path / "host_vars" / "h").write_text(f"a: !vault |\n  {SECRET}\n b: [\n")
    with pytest.raises(DocumentFaults) as told:
        ansible.read(tmp_path / "hosts.yml")
    assert SECRET not in str(told.value)
    (tmp_path / "hosts.yml").write_text(vault)
    with pytest.raises(BadInput, match="encrypted by ansible-vault"):
        ansible.read(tmp_path / "hosts.yml")


def test_a_variable_named_like_a_secret_is_no_label() -> None:
    (node,) = ansible.from_text("h bmc_password=x api_token=y vault_key=z ansible_become_pass=w rack=r1", "inv").nodes
    assert dict(node.labels) == {"rack": "r1"}


def test_a_template_is_not_evaluated_and_a_node_whose_address_is_one_says_so() -> None:
    found = ansible.from_text("h ansible_host=\"{{ lookup('pipe', 'id') }}\" rack={{x}} ok=1", "inv")
    (node,) = found.nodes
    assert (node.address, dict(node.labels)) == ("h", {"ok": "1"})
    assert [warning.partition(" is ")[0] for warning in found.warnings] == [
        "inv:1: ansible_host",
        "inv:1: rack",
        "inv:1: ansible_host of h",
    ]


def test_a_host_that_is_called_as_a_group_keeps_its_variables_and_is_said() -> None:
    found = ansible.from_text("[a]\na v=1\nb\n", "inv")
    assert [dict(node.labels) for node in found.nodes] == [{"group.a": "true", "v": "1"}, {"group.a": "true"}]
    assert [warning.partition(";")[0] for warning in found.warnings] == ["inv:2: a is a host and a group"]


def test_a_template_hides_the_plain_value_below_it() -> None:
    (node,) = ansible.from_text("[g]\nh v={{x}}\n[g:vars]\nv=plain", "inv").nodes
    assert dict(node.labels) == {"group.g": "true"}


def test_the_local_connection_is_this_machine_and_the_old_names_of_variables_hold() -> None:
    far = "far ansible_ssh_host=10.0.0.9 ansible_ssh_port=2022 ansible_ssh_user=me"
    found = ansible.from_text(f"here ansible_connection=local\n{far}\nbox ansible_connection=docker", "inv")
    nodes = {node.name: node for node in found.nodes}
    assert nodes["here"].via is Via.LOCAL
    assert (nodes["far"].address, nodes["far"].port, nodes["far"].user) == ("10.0.0.9", 2022, "me")
    assert found.warnings == ("inv:3: box has ansible_connection docker; it is reached by SSH",)


@pytest.mark.parametrize(
    ("name", "text", "says"),
    [
        ("inventory.py", "#!/usr/bin/python3\nprint()", "is a program"),
        ("inventory.toml", "[a]\n", "TOML"),
        ("inventory", b"\xff\xfe", ":1: is not text in UTF-8"),
    ],
)
def test_what_is_not_read_is_refused_by_name(tmp_path: Path, name: str, text: str | bytes, says: str) -> None:
    (tmp_path / name).write_bytes(text if isinstance(text, bytes) else text.encode())
    with pytest.raises(BadInput, match=says) as told:
        ansible.read(tmp_path / name)
    assert str(tmp_path / name) in told.value.message
    with pytest.raises(BadInput, match="cannot be read"):
        ansible.read(tmp_path / "missing")


TEXTS = [path.read_text() for case in CASES.values() for path in case.rglob("*") if path.is_file()]
WORDS = st.sampled_from(
    [
        "[",
        "]",
        ":",
        "&a ",
        "*a",
        "<<: ",
        "!vault |\n",
        "{{",
        "hosts:",
        "children:\n",
        "  ",
        "\n",
        "[g:vars]\n",
        "n[1:9]",
        "\0",
        "\t",
    ]
)


@pytest.mark.parametrize("read", [ansible.from_text, ansible.from_yaml])
def test_any_text_is_read_or_refused_with_its_name_and_line(read: Callable[[str, str], Listing]) -> None:
    @settings(max_examples=200)
    @given(
        st.one_of(st.text(max_size=80), st.sampled_from(TEXTS)),
        st.lists(WORDS, max_size=4),
        st.integers(0, 2_000),
        st.integers(0, 60),
    )
    def holds(base: str, splice: list[str], at: int, gap: int) -> None:
        at %= len(base) + 1
        try:
            found = read(base[:at] + "".join(splice) + base[at + gap :], "inv")
        except DocumentFaults as fault:
            assert all(line.startswith("inv:") for line in fault.faults)
        else:
            assert all(node.name for node in found.nodes)

    holds()


HOSTILE = (
    "[" * 300_000,
    "a: " * 300_000,
    "{" * 300_000,
    "&a [" * 100_000,
    "a: &a {hosts: {h: }}\n" + "".join(f"g{n}: &g{n} {{<<: [*a, *a], hosts: {{x: }}}}\n" for n in range(2_000)),
    "l0: &l0 {children: {z: }}\n"
    + "".join(f"l{n + 1}: &l{n + 1} {{children: {{a: *l{n}, b: *l{n}}}}}\n" for n in range(40)),
    "n[0:99][0:99][0:99][0:99]",
    "n[1:199999]\n" * 5,
    "\n".join(f"[g{n}:children]\ng{n + 1}" for n in range(5_000)) + "\n[g5000]\nh\n",
    "h " + "a=1 " * 100_000,
    "h x='" + "(" * 100_000,
    "[a:vars]\nx=" + "'(" * 2_000 + "\n[a]\nh",
)


@pytest.mark.parametrize("read", [ansible.from_text, ansible.from_yaml])
def test_a_text_made_to_be_hard_is_read_or_refused_in_bounded_time(read: Callable[[str, str], Listing]) -> None:
    before = time.process_time()
    for text in HOSTILE:
        try:
            read(text, "inv")
        except DocumentFaults as fault:
            assert len(fault.message) < 200_000
    assert time.process_time() - before < 60
