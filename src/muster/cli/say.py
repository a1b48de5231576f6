"""`muster knowledge`, `version`: what Muster itself holds and is. None of them changes a node."""

import platform

from muster import __version__
from muster.cli.output import AsJson, app, envelope, run, say
from muster.knowledge.loader import load

A_NO, PARTIAL = 1, 5

knowledge_app = app("What the knowledge base holds.")
version_app = app("Print the version.")


@knowledge_app.command("info")
def knowledge_info(as_json: AsJson = False) -> None:
    """Show the revision of the knowledge base and how many records it holds."""

    async def work() -> int:
        base = load()
        data = {
            "revision": base.revision, "branches": len(base.branches), "driver_releases": len(base.releases),
            "cuda_toolkits": len(base.toolkits), "architectures": len(base.architectures), "package_sets": len(base.package_sets),
        }  # fmt: skip
        if as_json:
            say(envelope("knowledge", data))
        else:
            for key, value in data.items():
                say(f"{key.replace('_', ' ')}: {value}")
        return 0

    run(work, as_json=as_json)


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

    run(work, as_json=as_json)
