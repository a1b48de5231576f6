"""Forms that no recorded output has: older and broken tables, NICs in the topology, error reports of PCIe.

Written after the tools' known wording.
"""

from collections.abc import Mapping

from muster.discovery import discover
from muster.facts import captures
from muster.model.capture import Capture, CaptureSpec
from muster.model.fact import FactValue, Unknown

READERS = tuple(
    reader for reader in discover("muster.facts.captures", "READER").values() if isinstance(reader, CaptureSpec)
)


def facts(text: str, kind: str) -> Mapping[str, FactValue]:
    found = captures.read(text.encode(), READERS, kind=None, cut=False)
    assert isinstance(found, Capture), found
    assert found.kind == kind
    return found.facts


OLD_TABLE = """\
+-----------------------------------------------------------------------------+
| NVIDIA-SMI 390.157                Driver Version: 390.157                   |
|-------------------------------+----------------------+----------------------+
| GPU  Name        Persistence-M| Bus-Id        Disp.A | Volatile Uncorr. ECC |
| Fan  Temp  Perf  Pwr:Usage/Cap|         Memory-Usage | GPU-Util  Compute M. |
|===============================+======================+======================|
|   0  Tesla K20m          On   | 00000000:01:00.0 Off |                    0 |
| N/A   28C    P8    17W / 225W |     10MiB /  4743MiB |      0%      Default |
+-------------------------------+----------------------+----------------------+
|   1  GeForce GTX 750     Off  | 00000000:02:00.0 N/A |                  N/A |
| 40%   28C    P8    N/A /  N/A |     10MiB /  1000MiB |     N/A      Default |
+-------------------------------+----------------------+----------------------+
"""


def test_a_table_from_before_cuda_versions_and_mig_is_read() -> None:
    found = facts(OLD_TABLE, "smi_table")
    assert found["gpu.driver_version"] == "390.157"
    assert isinstance(found["gpu.cuda_version"], Unknown)
    assert found["gpu.count"] == 2
    assert found["gpu[00000000:01:00.0].name"] == "Tesla K20m"
    assert found["gpu[00000000:01:00.0].ecc.mode"] == "Enabled"
    assert found["gpu[00000000:02:00.0].power.limit"] == "N/A"
    assert found["gpu[00000000:02:00.0].memory"] == "1000 MiB"


def test_a_lost_gpu_in_a_table_leaves_the_other_ones_readable() -> None:
    lost = OLD_TABLE.replace("GeForce GTX 750     Off  ", "ERR!                ERR!  ").replace(
        "N/A |                  N/A |", "ERR! |                 ERR! |"
    )
    lost = lost.replace(
        "| 40%   28C    P8    N/A /  N/A |     10MiB /  1000MiB |     N/A      Default |",
        "|ERR!  ERR! ERR!    N/A / ERR! | GPU is lost          | ERR!   ERR! |",
    )
    found = facts(lost, "smi_table")
    assert found["gpu.count"] == 2
    assert found["gpu[00000000:01:00.0].memory"] == "4743 MiB"
    for field in ("name", "persistence", "ecc.mode", "fan", "memory", "utilization.gpu"):
        assert isinstance(found[f"gpu[00000000:02:00.0].{field}"], Unknown), field


def test_of_a_tool_that_ran_in_a_loop_the_first_report_is_read_and_the_others_are_said() -> None:
    query = "index, name, uuid\n0, NVIDIA H200, GPU-1\n1, NVIDIA H200, GPU-2\n0, NVIDIA H200, GPU-1\n1, NVIDIA H200, GPU-2\n"
    text = "==============NVSMI LOG==============\n\nDriver Version : 580.1.2\nAttached GPUs : 1\nGPU 00000000:01:00.0\n    Product Name : A\n\n"
    listed = "GPU 0: A (UUID: GPU-1)\nGPU 1: A (UUID: GPU-2)\n"
    for output, kind, count in (
        (OLD_TABLE * 3, "smi_table", 2),
        (query, "smi_csv", 2),
        (text * 3, "smi_q", 1),
        (listed * 2, "smi_list", 2),
    ):
        capture = captures.read(output.encode(), READERS, kind=None, cut=False)
        assert isinstance(capture, Capture)
        assert (capture.kind, capture.facts["gpu.count"]) == (kind, count)
        assert any("more than once" in warning for warning in capture.warnings)


def test_a_topology_with_nics_keeps_them_by_the_tools_name_and_apart_from_the_gpus_links() -> None:
    new = (
        "\tGPU0\tGPU1\tNIC0\tCPU Affinity\tNUMA Affinity\tGPU NUMA ID\n"
        "GPU0\t X \tNV18\tPXB\t0-55\t0\t\tN/A\nGPU1\tNV18\t X \tSYS\t56-111\t1\t\tN/A\nNIC0\tPXB\tSYS\t X \t\t\t\t\n"
    )
    old = (
        "\tGPU0\tGPU1\tmlx5_0\tCPU Affinity\tNUMA Affinity\n"
        "GPU0\t X \tNV18\tPXB\t0-55\t0\nGPU1\tNV18\t X \tSYS\t56-111\t1\nmlx5_0\tPXB\tSYS\t X \t\t\n"
    )
    for text, nic in ((new, "NIC0"), (old, "mlx5_0")):
        found = facts(text, "smi_topo")
        assert found["gpu.count"] == 2
        assert found["topo.gpu_links"] == ("NV18",)
        assert (found[f"link[GPU0-{nic}].kind"], found[f"link[GPU1-{nic}].kind"]) == ("PXB", "SYS")
        assert (found["gpu[1].cpus"], found["gpu[1].numa"]) == ("56-111", "1")


def test_error_reports_of_pcie_are_events_with_their_severity() -> None:
    found = facts(
        "[1.0] pcieport 0000:00:01.0: AER: Corrected error message received from 0000:01:00.0\n"
        "[1.1] nvidia 0000:01:00.0: PCIe Bus Error: severity=Corrected, type=Data Link Layer, (Transmitter ID)\n"
        "[1.2] pcieport 0000:60:01.1: PCIe Bus Error: severity=Uncorrected (Fatal), type=Transaction Layer, (Receiver ID)\n"
        "[1.3] acpi PNP0A08:29: _OSC: platform does not support [SHPCHotplug AER DPC]\n",
        "kernel_log",
    )
    assert found["kernel_log.count[aer]"] == 3
    assert (found["event[0000002].severity"], found["event[0000002].type"]) == ("Corrected", "Data Link Layer")
    assert found["event[0000003].severity"] == "Uncorrected (Fatal)"


def test_a_message_over_several_lines_is_one_event_unless_something_comes_between() -> None:
    lines = (
        "NVRM: The NVIDIA GPU 0000:09:00.0 (PCI ID: 10de:1d01)",
        "NVRM: installed in this system is not supported by open",
        "NVRM: nvidia.ko because it does not include the required GPU",
    )
    whole = facts("".join(f"[ 1.00000{n}] {line}\n" for n, line in enumerate(lines)), "kernel_log")
    assert (whole["kernel_log.events"], whole["event[0000001].kind"]) == (1, "not-supported-by-open")
    broken = facts(
        f"{lines[0]}\nNVRM: Xid (PCI:0000:01:00): 79, GPU has fallen off the bus\n{lines[1]}\n", "kernel_log"
    )
    assert broken["kernel_log.count[xid]"] == 1
    assert broken["kernel_log.events"] == 3


def test_a_row_that_does_not_fit_its_header_makes_the_count_unknown() -> None:
    text = "name, uuid, pstate\nNVIDIA H200, GPU-1, P0\nGPU is lost\n"
    found = facts(text, "smi_csv")
    assert isinstance(found["gpu.count"], Unknown)
    assert found["gpu[GPU-1].name"] == "NVIDIA H200"


def test_units_in_the_header_alone_are_given_to_the_values() -> None:
    found = facts("name, uuid, memory.total [MiB]\nNVIDIA H200, GPU-1, 143771\n", "smi_csv")
    assert found["gpu[GPU-1].memory"] == "143771 MiB"


def test_old_and_new_words_for_what_a_board_does_not_have_are_one() -> None:
    found = facts("name, uuid, ecc.mode.current, mig.mode.current\nA, GPU-1, [Not Supported], [N/A]\n", "smi_csv")
    assert found["gpu[GPU-1].ecc.mode"] == found["gpu[GPU-1].mig.mode"] == "N/A"


def test_a_process_whose_name_holds_a_comma_is_one_process() -> None:
    found = facts("pid, process_name, used_gpu_memory [MiB]\n12, /opt/a, b, 30 MiB\n", "smi_compute_apps")
    assert (found["holder.pids"], found["holder.names"]) == (("12",), ("/opt/a, b",))


def test_a_pip_or_conda_list_tells_the_cuda_that_torch_was_built_for() -> None:
    assert facts("numpy==2.1.0\ntorch==2.5.1+cu124\n", "pip_freeze")["environment.torch_cuda"] == "12.4"
    assert facts("numpy==2.1.0\ntorch==2.5.1+cpu\n", "pip_freeze")["environment.torch_cuda"] == "none"
    assert "environment.torch_cuda" not in facts("numpy==2.1.0\ntorch==2.5.1\n", "pip_freeze")
    forge = "# packages in environment at /opt/conda:\n#\npytorch  2.4.1  cuda120_py312h26b3cf7_300  conda-forge\n"
    assert facts(forge, "conda_list")["environment.torch_cuda"] == "12.0"
    by_pip = "# packages in environment at /opt/conda:\n#\ntorch  2.5.1  pypi_0  pypi\n"
    assert isinstance(facts(by_pip, "conda_list")["environment.torch_cuda"], Unknown)


def test_a_list_that_ansible_printed_with_a_line_before_it_is_still_recognised() -> None:
    for output, kind in (("GPU 0: A (UUID: GPU-1)\n", "smi_list"), (OLD_TABLE, "smi_table")):
        assert facts(f"node01 | CHANGED | rc=0 >>\n{output}", kind)["gpu.count"] in (1, 2)


def test_a_name_with_brackets_never_breaks_a_path() -> None:
    found = facts(
        "Error! Bad return status for module build on kernel: 6.8\ndpkg: error processing package a]b[c (--configure):\n",
        "dkms_build",
    )
    assert found["package[a_b_c].state"] == "half-configured"
