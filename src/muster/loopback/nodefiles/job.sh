#!/bin/sh
# Watches one stand-in job: ID SECONDS GPUS. Lives outside the node, so that a restart of the node does not take its record away.
root=$1 id=$2 seconds=$3 gpus=$4
record=$root/loopback/jobs/$id.json
began=$(date +%s)
note() {
    printf '{"job": "%s", "pid": %s, "seconds": %s, "began_at": %s, "state": "%s", "ended_at": %s, "watched_by": %s}\n' \
        "$id" "$pid" "$seconds" "$began" "$1" "$2" "$$" > "$record.new"
    mv "$record.new" "$record"
}
: >> "$root/dev/nvidia0"
MUSTER_ROOT=$root setsid sleep "$seconds" 3< "$root/dev/nvidia0" &
pid=$!
ln -sf "/proc/$pid" "$root/proc/$pid"
for gpu in $(echo "$gpus" | tr , ' '); do
    echo "$gpu 40960 python3"
done > "$root/loopback/held/$pid"
# Asked to, the job comes to its own end before its time.
finished=
trap 'finished=1; kill "$pid" 2>/dev/null' USR1
note running null
wait "$pid"
status=$?
if [ -n "$finished" ]; then
    wait "$pid"
    status=0
fi
rm -f "$root/loopback/held/$pid" "$root/proc/$pid"
case $status in
    0) note finished "$(date +%s)" ;;
    *) note "killed by SIG$(kill -l "$status" 2>/dev/null || echo "$status")" "$(date +%s)" ;;
esac
