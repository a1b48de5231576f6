"""A signed apt repository of the driver's packages, as a folder that any web server can serve."""

import os
import shutil
from collections.abc import Iterable
from pathlib import Path

from lab.packages import RELEASES, Package, Release, packages
from lab.tools import run

KEY_ID = "lab@muster.invalid"


def build(folder: Path, kernel: str, releases: Iterable[Release] = RELEASES, extra: Iterable[Package] = ()) -> None:
    """Build all packages into `folder`/pool, index and sign them; the public key is `folder`/lab.gpg."""
    pool = folder / "pool"
    pool.mkdir(parents=True, exist_ok=True)
    for release in releases:
        for each in packages(release, kernel):
            _write(pool, each)
    for each in extra:
        _write(pool, each)
    index(folder)


def add(folder: Path, packages: Iterable[Package]) -> None:
    """Put packages beside those that are there, in place of those of the same name and version, and make the index anew."""
    for each in packages:
        _write(folder / "pool", each)
    index(folder)


def index(folder: Path) -> None:
    """Make the index anew from what lies in the pool, and sign it."""
    listed = run(["sh", "-c", f"cd '{folder}' && apt-ftparchive packages pool"])
    (folder / "Packages").write_text(listed, encoding="utf-8")
    options = ["-o", "APT::FTPArchive::Release::Origin=NVIDIA", "-o", "APT::FTPArchive::Release::Suite=stable"]
    for stale in ("Release", "InRelease", "Release.gpg"):
        (folder / stale).unlink(missing_ok=True)
    (folder / "Release").write_text(run(["apt-ftparchive", *options, "release", str(folder)]), encoding="utf-8")
    sign(folder)


def sign(folder: Path) -> None:
    """Sign `Release` with the laboratory's own key, made at the first time."""
    home = folder.parent / "gnupg"
    env = {**os.environ, "GNUPGHOME": str(home)}
    if not home.exists():
        home.mkdir(mode=0o700)
        run(
            ["gpg", "--batch", "--quiet", "--passphrase", "", "--quick-gen-key", KEY_ID, "ed25519", "sign", "never"],
            env=env,
        )
    run(["gpg", "--batch", "--yes", "--export", "-o", str(folder / "lab.gpg"), KEY_ID], env=env)
    run(["gpg", "--batch", "--yes", "--armor", "--export", "-o", str(folder / "lab.asc"), KEY_ID], env=env)
    run(["gpg", "--batch", "--yes", "--clearsign", "-o", str(folder / "InRelease"), str(folder / "Release")], env=env)
    run(["gpgconf", "--kill", "gpg-agent"], env=env)


def _write(pool: Path, package: Package) -> None:
    tree = pool.parent / "tree"
    shutil.rmtree(tree, ignore_errors=True)
    fields = {
        "Package": package.name, "Version": package.version, "Architecture": "amd64", "Maintainer": f"Muster lab <{KEY_ID}>",
        "Section": "non-free/kernel", "Priority": "optional", "Source": "nvidia-graphics-drivers", **package.fields,
        "Description": f"{package.name} (stand-in of the laboratory, drives no hardware)",
    }  # fmt: skip
    control = "".join(f"{key}: {value}\n" for key, value in fields.items())
    parts = {
        "DEBIAN/control": control,
        **{f"DEBIAN/{name}": text for name, text in package.scripts.items()},
        **package.files,
    }
    if package.conffiles:
        parts["DEBIAN/conffiles"] = "".join(f"{path}\n" for path in package.conffiles)
    for path, content in parts.items():
        place = tree / path
        place.parent.mkdir(parents=True, exist_ok=True)
        if isinstance(content, bytes):
            place.write_bytes(content)
        elif content.startswith("->"):
            place.symlink_to(content[2:])
            continue
        else:
            place.write_text(content, encoding="utf-8")
        place.chmod(0o755 if isinstance(content, str) and content.startswith("#!") else 0o644)
    run(["dpkg-deb", "--root-owner-group", "-Zgzip", "-z1", "--build", str(tree), str(pool)])
    shutil.rmtree(tree)
