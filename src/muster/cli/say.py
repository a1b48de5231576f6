"""`muster version`: what Muster itself is. It changes no node."""

import platform

from muster import __version__
from muster.cli.output import AsJson, app, envelope, run, say
from muster.knowledge.loader import load

version_app = app("Print the version.")


@version_app.command()
def version(as_json: AsJson = False) -> None:
    """Print the version of Muster and of what it runs on."""

    async def work() -> int:
        revision, python = load().revision, platform.python_version()
        if as_json:
            say(envelope("version", {"version": __version__, "python": python, "knowledge": revision}))
        else:
            say(f"muster {__version__} (Python {python}, knowledge {revision[:12]})")
        return 0

    run(work, as_json=as_json, waits=False)
