"""Plain SSH machines without a scheduler: the processes that hold a GPU are the jobs, and our lease on the node is the cordon.

No job is ever ended here. A launcher that wants to honour a cordon looks for the lease file on the node; nothing else can hold back new
processes on a machine without a scheduler, and the docs say so.
"""

from collections.abc import Callable

from muster.model.command import Answered, Command, JobWork, ListJobs, Outcome
from muster.model.job import Gang, Job
from muster.model.node import Node
from muster.ports import Scheduler, Transport

ASK_S = 60

_HOLDERS = """\
PATH=$PATH:/usr/sbin:/sbin
scratch=$(mktemp -d) || exit 1
trap 'rm -rf "$scratch"' EXIT
{ nvidia-smi --query-compute-apps=pid,process_name --format=csv,noheader; echo $? >"$scratch/rc"; } \
  </dev/null >"$scratch/apps" 2>&1 &
tries=0
until [ -s "$scratch/rc" ] || [ $tries -ge 200 ]; do
  tries=$((tries + 1))
  sleep 0.05
done
if [ "$(cat "$scratch/rc" 2>/dev/null)" = 0 ]; then cat "$scratch/apps"; exit 0; fi

# It fails, or hangs, on a broken GPU: the kernel still knows who has a device open.
find "$MUSTER_ROOT"/proc/[0-9]*/fd -lname "$MUSTER_ROOT/dev/nvidia[0-9]*" >"$scratch/open" 2>"$scratch/err"
if grep -q 'Permission denied' "$scratch/err"; then
  cat "$scratch/apps"
  echo 'nvidia-smi does not answer, and to see who has the devices open needs root'
  exit 1
fi
sed -n 's,.*/proc/\\([0-9]*\\)/fd/.*,\\1,p' "$scratch/open" | sort -un | while read -r pid; do
  name=$(cat "$MUSTER_ROOT/proc/$pid/comm" 2>/dev/null) || continue
  case $name in
    nvidia-persiste*|nv-hostengine|nv-fabricmanage*|nvidia-imex*|dcgm*|slurmd|gpud|nvidia*exporte*|nvidia-smi) ;;
    *) echo "$pid, $name" ;;
  esac
done
exit 0
"""
"""One line `pid, name` for each process that computes on a GPU. The services that hold a device for the driver itself are no jobs."""


class NoScheduler:
    """`ports.Scheduler` for machines that have none."""

    name = "none"

    def __init__(self, transport: Transport) -> None:
        self._transport = transport

    async def jobs(self, node: Node) -> tuple[Job, ...] | Outcome:
        """The processes that hold a GPU. An answer that is not a list of them is handed on as it came: unknown is not idle."""
        outcome = await self._transport.run(node, Command(("sh", "-s"), _HOLDERS.encode(), ASK_S, ListJobs()))
        if not isinstance(outcome, Answered) or outcome.exit_status != 0:
            return outcome
        jobs: dict[str, Job] = {}
        for line in outcome.stdout.decode(errors="replace").splitlines():
            if not line.strip():
                continue
            pid, comma, name = line.partition(",")
            if not comma or not pid.strip().isdecimal():
                return outcome
            jobs[pid.strip()] = Job(
                pid.strip(), name.strip(), (node.name,), is_process=True
            )  # one line for each GPU it holds
        return tuple(jobs.values())

    async def cordon(self, node: Node, rollout_id: str, reason: str, *, over: str = "") -> Outcome:
        """The lease is already there; nothing more can be done on such a machine."""
        return Answered(0, b"no scheduler here: the lease is the cordon, and whoever starts later is waited for", b"")

    async def cordoned(self, node: Node, rollout_id: str) -> Outcome:
        """As long as the lease is there, which the node itself watches over."""
        return Answered(0, b"the lease is the cordon", b"")

    async def uncordon(self, node: Node, rollout_id: str) -> Outcome:
        """Releasing the lease lifts it."""
        return Answered(0, b"no scheduler here", b"")

    async def gang(self, node: Node, job: Job, rollout_id: str) -> Gang:
        """A process is on one node."""
        return Gang(first=True, cordoned=1, size=1)

    async def tell(self, work: JobWork) -> Outcome:
        """Nobody here can put a process back into a queue, and none is ended."""
        return Answered(1, b"there is no scheduler here that could do it", b"")


BACKEND: Callable[[Transport], Scheduler] = NoScheduler
