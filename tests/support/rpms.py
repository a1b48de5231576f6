"""A signed repository of self-made RPMs with the names of NVIDIA's packages for RHEL 9, built by the real rpmbuild, rpmsign and createrepo_c.

Names, epochs, releases and the way the packages need one another follow NVIDIA's repository as far as public lists show it; the contents are
ours and drive no hardware. No distribution's package is in it: what the packages need of one (a shell) is a package of ours as well.
"""

import os
import shutil
import subprocess
import threading
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

PROGRAMS = ("rpmbuild", "rpmsign", "createrepo_c", "modifyrepo_c", "gpg")
REPOSITORY = "cuda-rhel9-x86_64"
KMOD, KMOD_CLOSED = "kmod-nvidia-open-dkms", "kmod-nvidia-latest-dkms"

NEEDS: Mapping[str, tuple[str, ...]] = {
    KMOD: ("nvidia-kmod-common",),
    "libnvidia-ml": (),
    "nvidia-driver-cuda": ("nvidia-driver-cuda-libs", "nvidia-persistenced", "nvidia-kmod"),
    "nvidia-driver-cuda-libs": ("libnvidia-ml",),
    "nvidia-kmod-common": ("nvidia-modprobe",),
    "nvidia-modprobe": (),
    "nvidia-persistenced": ("libnvidia-ml",),
}
FABRIC = "nvidia-fabricmanager"
MEMBERS = (*sorted((*NEEDS, FABRIC)),)
"""The stack. Unlike the others the fabric manager has no epoch and no `.el9`."""


@dataclass(frozen=True)
class Release:
    """One driver in the repository. `builds` false: the script of its module's package fails, as a dkms build does. `allowed`
    false: the script of its libraries forbids them to be laid down. `padding`: bytes in it."""

    version: str
    builds: bool = True
    allowed: bool = True
    padding: int = 0


@dataclass(frozen=True)
class Workshop:
    """Where RPMs are made and signed: `key` is the public half, `home` gpg's folder with the secret one."""

    folder: Path

    @property
    def key(self) -> Path:
        return self.folder / "key.asc"

    @property
    def home(self) -> Path:
        return self.folder / "gpg"


def version_of(member: str, driver: str) -> str:
    """The package's version for a driver, as rpm shows it."""
    return f"{driver}-1" if member == FABRIC else f"3:{driver}-1.el9"


def workshop(folder: Path) -> Workshop:
    """A folder with a signing key of its own."""
    made = Workshop(folder)
    made.home.mkdir(parents=True, mode=0o700)
    _run(
        made,
        [
            "gpg",
            "--batch",
            "--quiet",
            "--passphrase",
            "",
            "--quick-gen-key",
            "Lab <lab@localhost>",
            "rsa2048",
            "sign",
            "never",
        ],
    )
    made.key.write_bytes(_run(made, ["gpg", "--batch", "--armor", "--export"]))
    return made


def build(made: Workshop, repository: Path, releases: Iterable[Release], *, signed: bool = True) -> None:
    """Build all packages of `releases`, and the base package that they need, into `repository`; no index yet."""
    specs = {"base": _BASE} | {each.version: spec(each) for each in releases}
    for name, text in specs.items():
        build_spec(made, repository, name, text)
    if signed:
        sign(made, repository.glob("*.rpm"))


def build_spec(made: Workshop, repository: Path, name: str, text: str) -> None:
    repository.mkdir(parents=True, exist_ok=True)
    path = made.folder / f"{name}.spec"
    path.write_text(text, encoding="utf-8")
    places = {
        "_topdir": made.folder / "build",
        "_rpmdir": repository,
        "_rpmfilename": "%%{NAME}-%%{VERSION}-%%{RELEASE}.%%{ARCH}.rpm",
    }
    settled = {
        "debug_package": "%{nil}",
        "_build_id_links": "none",
        "_binary_payload": "w0.gzdio",
        "_buildhost": "localhost",
    }
    defined = [word for key, value in {**places, **settled}.items() for word in ("--define", f"{key} {value}")]
    _run(made, ["rpmbuild", "-bb", "--quiet", "--target", "x86_64", *defined, str(path)])


def sign(made: Workshop, packages: Iterable[Path]) -> None:
    files = sorted(str(path) for path in packages)
    _run(
        made, ["rpmsign", "--addsign", "--define", "_gpg_name lab@localhost", "--define", "__gpg /usr/bin/gpg", *files]
    )


def index(made: Workshop, repository: Path, modules: str = "", *, signed: bool = False) -> None:
    """Write the repository's index, with `modules` as its module streams; `signed`: and a signature of the index."""
    shutil.rmtree(repository / "repodata", ignore_errors=True)
    _run(made, ["createrepo_c", "--quiet", "--no-database", str(repository)])
    if modules:
        (made.folder / "modules.yaml").write_text(modules, encoding="utf-8")
        _run(
            made, ["modifyrepo_c", "--mdtype=modules", str(made.folder / "modules.yaml"), str(repository / "repodata")]
        )
    if signed:
        _run(made, ["gpg", "--batch", "--yes", "--armor", "--detach-sign", str(repository / "repodata/repomd.xml")])


def stream(name: str, drivers: Iterable[str]) -> str:
    """One stream of the module nvidia-driver, as a document of modules.yaml."""
    artifacts = "".join(
        f"      - {member}-{version_of(member, driver) if member != FABRIC else '0:' + version_of(member, driver)}.x86_64\n"
        for driver in drivers
        for member in (*MEMBERS, KMOD_CLOSED)
    )
    return (
        "---\ndocument: modulemd\nversion: 2\ndata:\n  name: nvidia-driver\n"
        f"  stream: '{name}'\n  version: 20260101000000\n  context: abcdef12\n  arch: x86_64\n"
        "  summary: stand-in\n  description: stand-in\n  license:\n    module: [MIT]\n"
        f"  artifacts:\n    rpms:\n{artifacts}...\n"
    )


def repo_file(url: str, more: str = "") -> str:
    return f"[{REPOSITORY}]\nname=stand-in\nbaseurl={url}\nenabled=1\ngpgcheck=1\ngpgkey={url}/key.asc\n{more}"


@contextmanager
def served(folder: Path) -> Iterator[str]:
    """The folder over HTTP on this machine alone, as long as the context lasts; gives its URL."""
    server = ThreadingHTTPServer(("127.0.0.1", 0), partial(_Quiet, directory=str(folder)))
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_address[1]}"
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


class _Quiet(SimpleHTTPRequestHandler):
    def log_message(self, format: str, *args: object) -> None:  # noqa: A002 - the name is the library's
        pass


def spec(release: Release) -> str:
    """The spec of all packages of a release: one source, as NVIDIA's is, and the fabric manager beside it."""
    parts = [
        f"Name: {FABRIC}\nVersion: {release.version}\nRelease: 1\nSummary: stand-in\nLicense: MIT\n%description\nstand-in\n%files\n"
    ]
    install = ["%install\nmkdir -p %{buildroot}/usr/share/nvidia %{buildroot}/etc/modprobe.d"]
    for member, needs in {**NEEDS, KMOD_CLOSED: NEEDS[KMOD]}.items():
        parts.append(_package(release, member, needs))
        install.append(f"echo '{member} {release.version}' >%{{buildroot}}/usr/share/nvidia/{member}")
        if release.padding:
            install.append(f"head -c {release.padding} /dev/urandom >>%{{buildroot}}/usr/share/nvidia/{member}")
    install.append(
        f"printf '# shipped with {release.version}\\nblacklist nouveau\\n' >%{{buildroot}}/etc/modprobe.d/nvidia.conf"
    )
    return "\n".join((*parts, *install)) + "\n"


def _package(release: Release, member: str, needs: Iterable[str]) -> str:
    exact = "= 3:%{version}-1.el9"
    lines = [f"%package -n {member}", "Epoch: 3", "Release: 1.el9", "Summary: stand-in", "Requires: /bin/sh"]
    lines += [f"Requires: {need} {exact}" for need in needs]
    if member in (KMOD, KMOD_CLOSED):
        other = KMOD if member == KMOD_CLOSED else KMOD_CLOSED
        lines += [f"Provides: nvidia-kmod {exact}", f"Conflicts: {other}"]
    lines += [f"%description -n {member}", "stand-in", f"%files -n {member}", f"/usr/share/nvidia/{member}"]
    if member == "nvidia-kmod-common":
        lines.append("%config(noreplace) /etc/modprobe.d/nvidia.conf")
    lines += _scripts(release, member)
    return "\n".join(lines) + "\n"


def _scripts(release: Release, member: str) -> list[str]:
    if member in (KMOD, KMOD_CLOSED):
        slow = "if [ -r /var/tmp/slow ]; then sleep $(cat /var/tmp/slow); fi"
        build = (
            "echo 'Building initial module'"
            if release.builds
            else "echo 'Error! Bad return status for module build' >&2\nexit 10"
        )
        return [f"%post -n {member}", slow, build]
    if member == "libnvidia-ml" and not release.allowed:
        return [f"%pre -n {member}", "exit 1"]
    if member == "nvidia-persistenced":
        return [f"%post -n {member}", 'echo "offline ${SYSTEMD_OFFLINE-}" >>/var/tmp/daemons']
    return []


_BASE = """\
Name: bash
Version: 5.1.8
Release: 9.el9
Summary: stand-in for what the packages need of a distribution
License: MIT
Provides: /bin/sh
%description
stand-in
%files
"""


def _run(made: Workshop, argv: list[str]) -> bytes:
    environment = {**os.environ, "GNUPGHOME": str(made.home), "LC_ALL": "C.UTF-8", "HOME": str(made.folder)}
    done = subprocess.run(argv, capture_output=True, env=environment, check=False)
    if done.returncode != 0:
        raise RuntimeError(
            f"{' '.join(argv)} failed with {done.returncode}: {done.stderr.decode(errors='replace').strip()}"
        )
    return done.stdout
