"""The commands of the sources that unpack, count and bound, run for real over a folder that stands for a node's root."""

import gzip
import json
import lzma
import os
import resource
import shutil
import subprocess
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

import pytest

from muster.discovery import one
from muster.model.fact import FactSpec, FactValue, RawOutput, Unknown

KERNEL = "6.1.0-57-amd64"
IMAGE = f"boot/initrd.img-{KERNEL}"
LISTED_S = 300
"""An image is listed by a process of the lowest priority: on a busy machine that takes a while."""


def answer(
    name: str, root: Path, *, tools: Path | None = None, only: bool = False, memory_kib: int | None = None
) -> Mapping[str, FactValue]:
    """What the source says of the root. `tools` come first among the programs, or alone; none of them may have more memory than is given."""
    spec = one("muster.facts", name, "FACT")
    assert isinstance(spec, FactSpec)
    path = os.environ["PATH"] if tools is None else str(tools) if only else f"{tools}:{os.environ['PATH']}"
    env = {"PATH": path, "MUSTER_ROOT": str(root), "LC_ALL": "C", "TZ": "UTC"}
    command = spec.command if memory_kib is None else f"ulimit -v {memory_kib}\n{spec.command}"
    done = subprocess.run(["/bin/sh", "-c", command], stdin=subprocess.DEVNULL, capture_output=True, env=env)
    return spec.parse(RawOutput(done.returncode, done.stdout[: spec.cap_bytes], len(done.stdout) > spec.cap_bytes))


def write(root: Path, files: Mapping[str, str | bytes]) -> Path:
    for name, content in files.items():
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_bytes(content if isinstance(content, bytes) else content.encode())
    return root


def program(folder: Path, name: str, text: str) -> Path:
    folder.mkdir(exist_ok=True)
    (folder / name).write_text(f"#!/bin/sh\n{text}\n")
    (folder / name).chmod(0o755)
    return folder


def cpio(entries: Sequence[tuple[str, bytes]]) -> bytes:
    """An archive as the kernel unpacks it (newc)."""
    out = b""
    for name, data in (*entries, ("TRAILER!!!", b"")):
        fields = (1, 0o100644, 0, 0, 1, 0, len(data), 0, 0, 0, 0, len(name) + 1, 0)
        head = b"070701" + b"".join(b"%08X" % field for field in fields) + name.encode() + b"\0"
        out += head + b"\0" * (-len(head) % 4) + data + b"\0" * (-len(data) % 4)
    return out + b"\0" * (-len(out) % 512)


def zstd(data: bytes) -> bytes:
    return subprocess.run(["zstd", "-qc"], input=data, capture_output=True, check=True).stdout


PACKED: Mapping[str, Callable[[bytes], bytes]] = {
    "not packed": lambda data: data,
    "gzip": gzip.compress,
    "xz": lzma.compress,
    **({"zstd": zstd} if shutil.which("zstd") else {}),
}
NOISE = bytes((at * 7919 + at // 251) % 256 for at in range(200_000))
MODULE = f"usr/lib/modules/{KERNEL}/updates/dkms/nvidia.ko"
EARLY = cpio([("kernel/x86/microcode/AuthenticAMD.bin", NOISE)])
PLAIN = NOISE + b"\0version=570.195.03\0license=Dual MIT/GPL\0" + NOISE
MAIN = cpio(
    [("init", b"#!/bin/sh\n"), (f"usr/lib/modules/{KERNEL}/kernel/x.ko", b"\0version=999.9\0"), (MODULE, PLAIN),
     (f"usr/lib/modules/{KERNEL}/kernel/drivers/gpu/drm/nouveau/nouveau.ko", NOISE)]
)  # fmt: skip


def listed(root: Path) -> Mapping[str, FactValue]:
    """What the source says once the image has been listed."""
    (root / "run/muster").mkdir(parents=True, exist_ok=True)
    (root / f"boot/vmlinuz-{KERNEL}").touch()
    until = time.monotonic() + LISTED_S
    found = answer("initramfs", root)
    while "being listed" in str(found[f"kernel[{KERNEL}].initramfs.modules"]) and time.monotonic() < until:
        found = answer("initramfs", root)
    return found


@pytest.mark.parametrize("form", PACKED)
def test_an_initramfs_of_several_archives_is_listed_with_the_version_of_its_module(form: str, tmp_path: Path) -> None:
    if form in ("xz", "zstd") and shutil.which(form) is None:
        pytest.skip(f"{form} is not on this machine")
    write(tmp_path, {IMAGE: EARLY + EARLY + PACKED[form](MAIN)})
    found = listed(tmp_path)
    assert found["initramfs.images"] == (KERNEL,)
    assert found[f"kernel[{KERNEL}].initramfs.modules"] == ("nouveau", "nvidia")
    assert found[f"kernel[{KERNEL}].initramfs.nvidia"] == "570.195.03"


def test_an_image_that_is_as_it_was_is_not_unpacked_again(tmp_path: Path) -> None:
    write(tmp_path, {IMAGE: EARLY + gzip.compress(MAIN)})
    assert listed(tmp_path)[f"kernel[{KERNEL}].initramfs.nvidia"] == "570.195.03"
    kept = tmp_path / "run/muster/initramfs" / KERNEL
    kept.write_text(kept.read_text().replace("570.195.03", "580.126.20"))
    assert listed(tmp_path)[f"kernel[{KERNEL}].initramfs.nvidia"] == "580.126.20"
    write(tmp_path, {IMAGE: EARLY + gzip.compress(cpio([("init", b"")]))})
    assert listed(tmp_path)[f"kernel[{KERNEL}].initramfs.modules"] == ()


@pytest.mark.parametrize(
    ("image", "why"),
    [
        (EARLY + b"Joy!peff and more", "packed in an unknown way"),
        (EARLY[:-600], "an archive in it has no end"),
    ],
)
def test_an_image_that_cannot_be_read_is_unknown_with_the_reason(image: bytes, why: str, tmp_path: Path) -> None:
    write(tmp_path, {IMAGE: image})
    value = listed(tmp_path)[f"kernel[{KERNEL}].initramfs.modules"]
    assert isinstance(value, Unknown)
    assert why in value.why


def test_images_of_kernels_that_are_gone_and_a_node_without_any_are_no_images(tmp_path: Path) -> None:
    write(
        tmp_path,
        {
            "boot/initrd.img-6.1.0-1-amd64": EARLY,
            "boot/initramfs-0-rescue-4f.img": EARLY,
            "boot/vmlinuz-0-rescue-4f": "",
        },
    )
    assert answer("initramfs", tmp_path) == {"initramfs.images": ()}


def test_of_a_log_of_a_gigabyte_the_newest_lines_are_read_in_little_memory(tmp_path: Path) -> None:
    text = "[  99.000001] NVRM: Xid (PCI:0000:9b:00): 79, pid=1, name=a, GPU has fallen off the bus"
    tools = program(
        tmp_path / "tools", "dmesg", f"yes '[   1.000000] NVRM: old noise' | head -c 1073741824; echo; echo '{text}'"
    )
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    found = answer("kernel_log", tmp_path, tools=tools, memory_kib=200_000)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    assert found["xid[0000:9b:00/79].count"] == 1
    newest = found["kernel_log.newest"]
    assert isinstance(newest, tuple)
    assert (len(newest), newest[-1]) == (20, text)
    assert after.ru_utime - before.ru_utime < 60


def test_a_kernel_log_that_may_not_be_read_is_unknown(tmp_path: Path) -> None:
    tools = program(
        tmp_path / "tools", "dmesg", "echo 'dmesg: read kernel buffer failed: Operation not permitted' >&2; exit 1"
    )
    assert "needs root" in str(answer("kernel_log", tmp_path, tools=tools)["kernel_log.newest"])


ID = "3f2a1b0c9d8e7f6a5b4c3d2e1f0a9b8c7d6e5f4a3b2c1d0e9f8a7b6c5d4e3f2a"
SPEC = {
    "process": {"env": ["PATH=/usr/bin", "CUDA_VERSION=12.4.1", "NVIDIA_VISIBLE_DEVICES=all"]},
    "linux": {"devices": [{"path": "/dev/nvidia0", "type": "c"}, {"path": "/dev/null"}]},
    "annotations": {
        "io.kubernetes.cri.container-name": "trainer",
        "io.kubernetes.cri.image-name": "nvcr.io/nvidia/pytorch:24.05-py3",
    },
}

PODMAN = {key: value for key, value in SPEC.items() if key != "annotations"}


def test_who_has_a_gpu_open_and_which_containers_run_is_read_from_files_alone(tmp_path: Path) -> None:
    process = "proc/4100/"
    write(
        tmp_path,
        {
            "sys/module/nvidia/version": "580\n", "proc/1/comm": "init\n", f"{process}comm": "python\n",
            f"{process}cgroup": "0::/system.slice/slurmstepd.scope/job_8812/step_0\n",
            f"{process}mountinfo": "22 1 8:1 / / rw - ext4 /dev/sda1 rw\n",
            f"run/containerd/io.containerd.runtime.v2.task/k8s.io/{ID}/config.json": json.dumps(SPEC),
            f"run/containerd/io.containerd.runtime.v2.task/moby/{'b' * 64}/config.json": json.dumps({"process": {"env": ["A=1"]}}),
            f"var/lib/containers/storage/overlay-containers/{'c' * 64}/userdata/config.json": json.dumps(PODMAN, indent=1),
            f"run/containers/storage/overlay-containers/{'c' * 64}/userdata/conmon.pid": "4100",
            f"var/lib/containers/storage/overlay-containers/{'d' * 64}/userdata/config.json": json.dumps(SPEC),
            f"run/containers/storage/overlay-containers/{'d' * 64}/userdata/conmon.pid": "4999",
            "var/lib/containers/storage/overlay-containers/containers.json": json.dumps(
                [{"id": "c" * 64, "metadata": json.dumps({"image-name": "quay.io/site/cuda:1"})}], separators=(",", ":")
            ),
        },
    )  # fmt: skip
    (tmp_path / "proc/1/fd").mkdir()
    (tmp_path / f"{process}fd").mkdir()
    for number, target in (("3", "/dev/nvidia0"), ("4", "/dev/nvidiactl"), ("5", "/dev/null")):
        (tmp_path / f"{process}fd" / number).symlink_to(target)
    found = answer("workload", tmp_path)
    assert found["device.holders"] == ("4100",)
    assert (found["holder[4100].name"], found["holder[4100].owner"]) == ("python", "job 8812")
    assert (found["workload.containers"], found["workload.gpu_containers"]) == (3, 2)
    assert found[f"container[{ID[:12]}].image"] == "nvcr.io/nvidia/pytorch:24.05-py3"
    assert found[f"container[{ID[:12]}].cuda"] == "12.4.1"
    assert found["container[cccccccccccc].runtime"] == "podman"
    assert found["container[cccccccccccc].image"] == "quay.io/site/cuda:1"
    assert not [path for path in found if "dddd" in path]


def test_toolkits_are_found_with_their_versions_and_without_running_anything(tmp_path: Path) -> None:
    json_text = (
        Path(__file__).parents[1] / "fixtures/captures/nvidia_smi/version-json_cuda-13.3.1_with-driver-entry.json"
    ).read_text()
    write(
        tmp_path,
        {
            "usr/local/cuda-13.3/version.json": json_text, "usr/local/cuda-13.3/bin/nvcc": "exit 1\n",
            "usr/local/cuda-10.2/version.txt": "CUDA Version 10.2.89\n",
            "usr/local/cuda-12.4/targets/x86_64-linux/lib/libcudart.so.12.4.127": "", "usr/local/cuda-9.9.txt": "",
        },
    )  # fmt: skip
    (tmp_path / "usr/local/cuda-13.3/bin/nvcc").chmod(0o755)
    (tmp_path / "usr/local/cuda").symlink_to("cuda-13.3")
    found = answer("cuda", tmp_path)
    names = ("/usr/local/cuda-10.2", "/usr/local/cuda-12.4", "/usr/local/cuda-13.3")
    assert found["cuda.toolkits"] == names
    assert [found[f"cuda[{name}].version"] for name in names] == ["10.2.89", "12.4.127", "13.3.1"]
    assert [found[f"cuda[{name}].nvcc"] for name in names] == [False, False, True]
    assert found["cuda[/usr/local/cuda-13.3].bundled_driver"] == json.loads(json_text)["nvidia_driver"]["version"]
    assert found["cuda.default"] == "/usr/local/cuda-13.3"


def test_gpus_on_the_bus_and_ports_are_read_from_sys(tmp_path: Path) -> None:
    devices = {
        "0000:1b:00.0": ("0x10de", "0x030200"),
        "0000:43:00.0": ("0x10de", "0x030200"),
        "0000:00:1f.0": ("0x8086", "0x060100"),
    }
    for name, (vendor, kind) in devices.items():
        write(
            tmp_path,
            {f"sys/bus/pci/devices/{name}/vendor": f"{vendor}\n", f"sys/bus/pci/devices/{name}/class": f"{kind}\n"},
        )
    (tmp_path / "sys/bus/pci/drivers/vfio-pci/0000:43:00.0").mkdir(parents=True)
    port = "sys/class/infiniband/mlx5_0/ports/1/"
    write(
        tmp_path,
        {
            f"{port}state": "4: ACTIVE\n", f"{port}phys_state": "5: LinkUp\n", f"{port}rate": "400 Gb/sec (4X NDR)\n",
            f"{port}link_layer": "InfiniBand\n", "sys/class/infiniband/mlx5_0/fw_ver": "28.39.1002\n",
        },
    )  # fmt: skip
    found = answer("hardware", tmp_path)
    assert (found["pci.gpus"], found["pci.gpus_elsewhere"], found["ib.ports"], found["ib.active"]) == (1, 1, 1, 1)
    assert (found["ib[mlx5_0/1].rate_gbps"], found["ib[mlx5_0/1].firmware"]) == ("400", "28.39.1002")
    assert isinstance(answer("hardware", tmp_path / "nowhere")["pci.gpus"], Unknown)


def test_a_file_of_etc_takes_the_place_of_the_vendors_file_of_the_same_name(tmp_path: Path) -> None:
    write(
        tmp_path,
        {
            "sys/module/nvidia/version": "580.126.20\n", "proc/driver/nvidia/params": "EnableMSI: 1\nRegistryDwords: \"\"\n",
            "usr/lib/modprobe.d/nvidia.conf": "options nvidia NVreg_EnableMSI=0\n",
            "etc/modprobe.d/nvidia.conf": "# options nvidia NVreg_EnableMSI=2\noptions nvidia NVreg_EnableMSI=0x1\n",
            "etc/modprobe.d/site.conf": "options nvidia-drm modeset=1\n  options nvidia NVreg_RegistryDwords=\"RMPowerFeature=1;b=2\"\n",
        },
    )  # fmt: skip
    found = answer("module", tmp_path)
    assert found["module.nvidia.parameters"] == ("EnableMSI=1", "RegistryDwords=")
    assert found["module.nvidia.options_differ"] == ("NVreg_RegistryDwords (empty) -> RMPowerFeature=1;b=2",)


KEYS = """\
0a6e9d3d I------     1 perm 1f030000     0     0 asymmetri Debian Secure Boot CA: 6ccece7e4c6c0d1f6149f3dd27dfcc5cbb419ea1: X509.rsa bb419ea1 []
1f0e2d3c I--Q---     2 perm 3f030000     0     0 keyring   _ses: 1
"""
MOKS = """\
[key 1]
SHA1 Fingerprint: 53:61:0c:f8:1f:bd:7e:0c:eb:67:91:3c:9e:f3:e7:94:a9:63:3e:cb
Certificate:
    Data:
        Version: 3 (0x2)
        Serial Number:
            ed:54:a1:d5:af:87:48:94:8d:9f:89:32:ee:9c:7c:34
        Signature Algorithm: sha256WithRSAEncryption
        Issuer: CN=Debian Secure Boot CA
        Subject: CN=Debian Secure Boot CA
"""


def test_enrolled_keys_come_with_their_numbers_and_the_kernels_own_with_their_names(tmp_path: Path) -> None:
    (tmp_path / "sys/firmware/efi/efivars").mkdir(parents=True)
    write(tmp_path, {"proc/keys": KEYS, "moks": MOKS})
    say = f"case $1 in --sb-state) echo 'SecureBoot enabled' ;; *) cat '{tmp_path}/moks' ;; esac"
    found = answer("secure_boot", tmp_path, tools=program(tmp_path / "tools", "mokutil", say))
    assert found["secure_boot.enrolled"] == ("Debian Secure Boot CA",)
    assert found["secure_boot.enrolled_serials"] == ("ed54a1d5af8748948d9f8932ee9c7c34",)
    assert found["secure_boot.kernel_keys"] == ("Debian Secure Boot CA",)


def test_where_there_is_no_dpkg_rpm_is_asked_once_for_as_long_as_its_database_is_the_same(tmp_path: Path) -> None:
    write(tmp_path, {"var/lib/rpm/rpmdb.sqlite": "1", "etc/dnf/dnf.conf": "[main]\nexcludepkgs=kernel* ,dkms\n"})
    (tmp_path / "run/muster").mkdir(parents=True)
    rows = "nvidia-driver\\t3:570.195.03-1.el9\\tx86_64\\nbash\\t5-1\\tx86_64\\nkernel-core\\t5.14.0-1.el9\\tx86_64\\n"
    tools = program(tmp_path / "tools", "rpm", f"echo >>'{tmp_path}/asked'; printf '{rows}'")
    for name in ("grep", "sed", "stat", "id", "cat", "mv", "sh"):
        (tools / name).symlink_to(shutil.which(name) or name)
    for _ in range(3):
        found = answer("dpkg", tmp_path, tools=tools, only=True)
    assert found["packages.manager"] == "rpm"
    assert (found["package[nvidia-driver].version"], found["package[nvidia-driver].hold"]) == (
        "3:570.195.03-1.el9",
        False,
    )
    assert found["package[kernel-core].hold"] is True
    assert "package[bash].version" not in found
    assert (tmp_path / "asked").read_text() == "\n"
    write(tmp_path, {"var/lib/rpm/rpmdb.sqlite": "22"})
    answer("dpkg", tmp_path, tools=tools, only=True)
    assert (tmp_path / "asked").read_text() == "\n\n"
