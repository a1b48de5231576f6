"""`muster demo`: the main job on a pretended fleet, on this machine, without root or a GPU."""

import json
import shutil
import tempfile
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Annotated

from muster.cli import declare
from muster.cli.output import app, guarded, note, say
from muster.loopback.demo import Report, demo_folder, run_demo

A_NO = 1

demo_app = app(
    "A fleet of twelve pretended nodes on this machine: one bad driver, one good one, the control plane killed in the middle."
)


@demo_app.command()
def demo(
    report: Annotated[
        Path | None, declare.option("--json", says="Write the report to this file (`-` for standard output).")
    ] = None,
    seed: Annotated[str, declare.option("--seed", says="Chooses the canaries; the same seed chooses the same.")] = "1",
    folder: Annotated[
        Path | None, declare.option("--dir", says="Play in this folder (absent or empty) and keep it.")
    ] = None,
) -> None:
    """Show the main job: a mixed fleet, a bad driver that stops itself at its first canary, a good one to the end. Exit 0 when all held."""

    def work() -> int:
        tell = note if report is not None and str(report) == "-" else say
        with demo_folder(folder, lambda: Path(tempfile.mkdtemp(prefix="muster-demo-")), shutil.rmtree) as place:
            result = run_demo(place, seed=seed, say=tell)
        _say_report(result, tell)
        if report is not None:
            text = json.dumps(result.body(), indent=2) + "\n"
            if str(report) == "-":
                say(text.rstrip())
            else:
                report.write_text(text)
                tell(f"report: {report}")
        return 0 if result.is_good else A_NO

    guarded(work, as_json=False)


def _say_report(result: Report, tell: Callable[[str], None]) -> None:
    def versions(counted: Mapping[str, int]) -> str:
        return ", ".join(f"{version} on {count}" for version, count in counted.items())

    tell("\nWhat the nodes and the audit log say:")
    tell(f"  drivers before: {versions(result.versions_before)}")
    tell(f"  drivers after:  {versions(result.versions_after)}")
    tell(f"  bad driver: {result.exposed} node exposed, {result.rolled_back} rolled back, {result.harmed} harmed")
    tell(f"  jobs killed: {result.jobs_killed}; nodes in service unvalidated: {result.unvalidated_in_service}")
    tell(f"  package transactions run twice, after a kill -9 of the control plane: {result.transactions_run_twice}")
    tell(f"  {result.seconds:.1f} s, {result.cpu_seconds:.1f} CPU-seconds, seed {result.seed}")
    tell("  everything held" if result.is_good else "  SOMETHING DID NOT HOLD")
