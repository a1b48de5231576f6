"""Running programs for the laboratory, with their own words in what is raised."""

import os
import shutil
import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path

PROGRAMS = ("systemd-nspawn", "debootstrap", "ip", "nsenter", "gpg", "dpkg-deb", "apt-ftparchive", "mke2fs")
"""What a laboratory needs beside root; tests name them in their mark."""


def run(argv: Sequence[str], *, stdin: str = "", timeout_s: float = 300, env: Mapping[str, str] | None = None) -> str:
    """What `argv` printed. Raises RuntimeError with its words when it fails."""
    done = subprocess.run(
        list(argv), input=stdin, capture_output=True, text=True, timeout=timeout_s, check=False, env=env
    )
    if done.returncode != 0:
        raise RuntimeError(f"{' '.join(argv)} ended with {done.returncode}: {(done.stderr or done.stdout).strip()}")
    return done.stdout


def obstacle() -> str:
    """Why no laboratory can be made here; empty when one can."""
    if os.geteuid() != 0:
        return "the laboratory needs root: containers, network namespaces and mounts"
    missing = [program for program in PROGRAMS if shutil.which(program) is None]
    if missing:
        return f"missing: {', '.join(missing)} (packages systemd-container debootstrap iproute2 gnupg dpkg apt-utils e2fsprogs)"
    return ""


def cache_folder() -> Path:
    """Where what is dear to make is kept over runs: $XDG_CACHE_HOME/muster/lab."""
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "muster" / "lab"
