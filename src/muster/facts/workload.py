"""Who has the GPUs open, and which containers run: docker, podman, containerd and CRI-O under Kubernetes, enroot under Slurm.

Read from /proc and from what the runtimes write down for themselves: no daemon is asked, and none can hang. A holder keeps the module from
being reloaded, whether it computes or not.
"""

import re
from collections.abc import Iterable, Mapping

from muster.facts import _read
from muster.model.fact import FactSpec, FactValue, RawOutput, Unknown

# One find over all open files, and only where the driver is loaded; of a holder the shell itself reads three small files. One grep over all
# containers.
_COMMAND = r"""
R="$MUSTER_ROOT"
if [ ! -d "$R/sys/module/nvidia" ]; then echo "module absent"
elif [ ! -r "$R/proc/1/fd" ]; then echo "holders shut"
else
  last='' count=0
  find "$R"/proc/[0-9]*/fd -maxdepth 1 -lname '/dev/nvidia*' | while read -r file; do
    pid=${file#"$R/proc/"} pid=${pid%%/*}
    if [ "$pid" = "$last" ] || [ "$count" -ge 100 ]; then continue; fi
    last=$pid count=$((count + 1)) comm='' group='' root=''
    read -r comm <"$R/proc/$pid/comm"
    while read -r line; do group=$line; case "$line" in *job_* | 0::/?*) break ;; esac; done <"$R/proc/$pid/cgroup"
    while read -r _ _ _ from at _; do if [ "$at" = / ]; then root=$from; break; fi; done <"$R/proc/$pid/mountinfo"
    echo "holder $pid;$comm;$group;$root"
  done
fi
set --
for bundle in "$R"/run/containerd/io.containerd.runtime.v2.task/*/*/config.json \
  "$R"/run/docker/containerd/daemon/io.containerd.runtime.v2.task/*/*/config.json \
  "$R"/run/containers/storage/overlay-containers/*/userdata/config.json; do
  if [ ! -r "$bundle" ]; then continue; fi
  set -- "$@" "$bundle"
  id=${bundle%/config.json} id=${id%/userdata} id=${id##*/}
  echo "bundle ${bundle#"$R"}"
  docker="$R/var/lib/docker/containers/$id/config.v2.json"
  if [ -r "$docker" ]; then set -- "$@" "$docker"; fi
done
for place in "$R"/run/containers/storage/overlay-containers/*/userdata/conmon.pid; do
  if [ ! -r "$place" ]; then continue; fi
  read -r pid <"$place"
  id=${place%/userdata/conmon.pid} id=${id##*/}
  bundle="$R/var/lib/containers/storage/overlay-containers/$id/userdata/config.json"
  if [ -d "$R/proc/$pid" ] && [ -r "$bundle" ]; then set -- "$@" "$bundle"; echo "bundle ${bundle#"$R"}"; fi
done
for folder in run/containerd run/docker run/containers; do
  if [ -d "$R/$folder" ] && [ ! -x "$R/$folder" ]; then echo "containers shut"; fi
done
if [ -r "$R/var/lib/containers/storage/overlay-containers/containers.json" ] && [ $# -gt 0 ]; then
  set -- "$@" "$R/var/lib/containers/storage/overlay-containers/containers.json"
fi
if [ $# -gt 0 ]; then
  wanted='"(CUDA_VERSION|NVIDIA_VISIBLE_DEVICES|NVIDIA_REQUIRE_CUDA)=[^"]{0,300}|"path": ?"/dev/nvidia[0-9]+'
  wanted="$wanted"'|"io\.kubernetes\.cri(-o)?\.[A-Za-z-]*([Nn]ame|[Tt]ype)": ?"[^"]{0,200}|"(Image|Name)":"[^"]{1,200}'
  wanted="$wanted"'|"id": ?"[0-9a-f]{64}|image-name\\?": ?\\?"[^"\\]{1,200}'
  grep -HoE "$wanted" "$@" |
    awk -v skip="${#R}" '{ line = substr($0, skip + 1) } !seen[line]++ && n++ < 3000 { print "in " substr(line, 1, 500) }'
fi
echo "asked yes"
"""

_FIELDS = ("runtime", "name", "image", "cuda", "devices", "requires")
_PROVIDES = (
    "device.holders", "holder[*].name", "holder[*].owner", "workload.containers", "workload.gpu_containers",
    *(f"container[*].{name}" for name in _FIELDS),
)  # fmt: skip

MOST_CONTAINERS = 200
_HOLDER = re.compile(r"holder (\d{1,10});([^;]{0,60});([^;]{0,600});(.{0,600})")
_IN = re.compile(r"in /(.{1,300}?)/([0-9a-zA-Z][\w.-]{1,100})/(?:userdata/)?config(\.v2)?\.json:(.{1,480})")
_BUNDLE = re.compile(r"bundle /(.{1,300}?)/([0-9a-zA-Z][\w.-]{1,100})/(?:userdata/)?config\.json")
_LIST = re.compile(r"in /var/lib/containers/\S{1,200}/containers\.json:(.{1,480})")
_ENV = re.compile(r'"(CUDA_VERSION|NVIDIA_VISIBLE_DEVICES|NVIDIA_REQUIRE_CUDA)=(.{0,300})')
_PAIR = re.compile(r'"([\w.-]{1,80})": ?"(.{0,300})')
_SCOPES = (
    (re.compile(r"/job_(\d{1,12})"), "job"),
    (re.compile(r"(?:cri-containerd|crio|docker|libpod)[:-]([0-9a-f]{12})"), "container"),
    (
        re.compile(r"/(?:docker|libpod_parent|kubepods[^;]{0,200})/(?:\S{0,200}/)?([0-9a-f]{12})[0-9a-f]{52}"),
        "container",
    ),
    (re.compile(r"/([\w@.:\\-]{1,100}\.service)"), "unit"),
    (re.compile(r"/user-(\d{1,10})\.slice"), "user"),
)
"""A control group -> whose it is; the first that fits."""
_ENV_FIELDS = {"CUDA_VERSION": "cuda", "NVIDIA_VISIBLE_DEVICES": "devices", "NVIDIA_REQUIRE_CUDA": "requires"}
_IMAGES = ("io.kubernetes.cri.image-name", "io.kubernetes.cri-o.ImageName", "Image")
_NAMES = ("io.kubernetes.cri.container-name", "io.kubernetes.cri-o.ContainerName", "Name")


def parse(raw: RawOutput) -> Mapping[str, FactValue]:
    """`device.holders`: the ids of the processes that have a /dev/nvidia* open, and of each its name and whose it is (`job 12`, `container
    3f2a..`, `unit NAME`, `user UID`, `enroot NAME`). `container[<id>]` of those that run and want GPUs or carry CUDA; `workload.containers`
    counts all that run.
    """
    why = _read.no_answer(raw, "the shell")
    if why:
        return _read.all_unknown(_PROVIDES, why)
    lines = _read.text(raw).splitlines()
    if "asked yes" not in lines:
        return _read.all_unknown(_PROVIDES, "the output ends too early")
    return {**_holders(lines), **_containers(lines)}


def _holders(lines: list[str]) -> Mapping[str, FactValue]:
    if "holders shut" in lines:
        return {"device.holders": Unknown("/proc/1/fd may not be read (needs root)")}
    found: dict[str, FactValue] = {}
    pids = []
    for match in filter(None, map(_HOLDER.fullmatch, lines)):
        pid, name, group, root = match.groups()
        pids.append(pid)
        found[f"holder[{pid}].name"] = name or Unknown("it has ended")
        found[f"holder[{pid}].owner"] = _owner(group, root)
    return {**found, "device.holders": tuple(dict.fromkeys(pids))}


def _owner(group: str, root: str) -> FactValue:
    if "enroot" in root or "/pyxis_" in root:
        return f"enroot {root.rpartition('/')[2][:100]}"
    for pattern, word in _SCOPES:
        match = pattern.search(group)
        if match:
            return f"{word} {match[1]}"
    return Unknown("its control group is nobody's that is known")


def _containers(lines: Iterable[str]) -> Mapping[str, FactValue]:
    seen: dict[str, dict[str, str]] = {}
    listed: dict[str, str] = {}
    at = ""
    shut = False
    for line in lines:
        shut = shut or line == "containers shut"
        bundle, entry, member = _BUNDLE.fullmatch(line), _IN.fullmatch(line), _LIST.fullmatch(line)
        if member:
            at = _listed(member[1], at, listed)
        elif bundle or entry:
            told = _told(seen, bundle or entry)
            if entry and told is not None:
                _take(entry[4], told)
    found: dict[str, FactValue] = {}
    wanting = 0
    for identity, told in seen.items():
        if told.get("kind") == "sandbox" or not any(told.get(name) for name in ("cuda", "devices", "requires")):
            continue
        wanting += 1
        told.setdefault("image", listed.get(identity, ""))
        if wanting <= MOST_CONTAINERS:
            found |= {f"container[{identity}].{name}": told[name] for name in _FIELDS if told.get(name)}
    every = sum(told.get("kind") != "sandbox" for told in seen.values())
    blind = Unknown("what the container runtimes write down may not be read (needs root)")
    found["workload.containers"] = blind if shut else every
    found["workload.gpu_containers"] = blind if shut else wanting
    return found


def _listed(said: str, at: str, listed: dict[str, str]) -> str:
    """One word of podman's list: an id, or the image of the last id."""
    pair = _PAIR.match(said)
    if pair and pair[1] == "id":
        return pair[2][:12]
    if "image-name" in said:
        listed.setdefault(at, said.replace("\\", "").rpartition('"')[2][:200])
    return at


def _told(seen: dict[str, dict[str, str]], match: re.Match[str] | None) -> dict[str, str] | None:
    """What is known of the container that a line is about; None beyond what any node runs."""
    if match is None:
        return None
    identity = match[2][:12]
    if identity not in seen and len(seen) >= 10 * MOST_CONTAINERS:
        return None
    told = seen.setdefault(identity, {})
    told.setdefault("runtime", _runtime(match[1]))
    return told


def _take(said: str, told: dict[str, str]) -> None:
    env, pair = _ENV.match(said), _PAIR.match(said)
    if env:
        if not (env[1] == "NVIDIA_VISIBLE_DEVICES" and env[2] in ("void", "none", "")):
            told.setdefault(_ENV_FIELDS[env[1]], env[2])
    elif pair and pair[1] == "path":
        told["devices"] = ",".join(dict.fromkeys([*filter(None, told.get("devices", "").split(",")), pair[2]]))
    elif pair and pair[1] in _IMAGES and not pair[2].startswith("sha256:"):
        told.setdefault("image", pair[2])
    elif pair and pair[1] in _NAMES:
        told.setdefault("name", pair[2].lstrip("/"))
    elif pair and pair[1].lower().endswith("type"):
        told["kind"] = pair[2]


def _runtime(place: str) -> str:
    if "/moby" in place or "docker" in place:
        return "docker"
    if "containerd" in place:
        return "containerd"
    return "podman" if place.startswith("var/lib/containers") else "cri-o"


FACT = FactSpec("workload", _COMMAND, 10, 131072, parse, _PROVIDES, momentary=True, whole_only=True)
