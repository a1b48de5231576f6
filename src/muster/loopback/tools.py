"""Which programs a laptop must have before it can play twelve nodes. Looks on PATH; installs nothing."""

import os
import shutil
import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path

from muster.model.errors import MissingTool

# Ordinary users on Debian lack the two sbin folders, and dpkg refuses to work without ldconfig and start-stop-daemon on PATH.
SYSTEM_PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"

# program -> the Debian and Ubuntu package that holds it
_NEEDED = {
    "apt-get": "apt",
    "dpkg": "dpkg",
    "dpkg-deb": "dpkg",
    "dpkg-query": "dpkg",
    "flock": "util-linux",
    "setsid": "util-linux",
    "awk": "mawk",
}


def search_path() -> str:
    """The caller's PATH with the system folders after it."""
    return os.pathsep.join(part for part in (os.environ.get("PATH", ""), SYSTEM_PATH) if part)


def require_tools(names: Sequence[str] = tuple(_NEEDED), *, path: str | None = None) -> None:
    """Raise MissingTool, naming every absent program and the remedy, unless all of `names` are on `path` (default: `search_path()`)."""
    where = search_path() if path is None else path
    absent = [name for name in names if shutil.which(name, path=where) is None]
    if not absent:
        return
    packages = sorted({_NEEDED.get(name, name) for name in absent})
    raise MissingTool(
        f"the loopback fleet needs {', '.join(absent)}, which this machine lacks",
        hint=(
            f"on Debian or Ubuntu: sudo apt-get install {' '.join(packages)}; "
            "on any other system run the demo inside a Debian or Ubuntu container or virtual machine"
        ),
    )


def spawn_detached(argv: Sequence[str], environment: Mapping[str, str], log: Path | None = None) -> None:
    """Start `argv` in a session of its own, child of nobody here, printing into `log` or nowhere; does not wait for it."""
    with (log or Path(os.devnull)).open("ab") as output:
        subprocess.run(
            ["setsid", "--fork", *argv],
            env={"PATH": search_path(), **environment},
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=output,
            check=True,
        )
