#!/bin/sh
# hold.sh KNOB: waits as many seconds as the knob says, or until it is taken away, whichever comes first.
knob=${MUSTER_ROOT:?}/loopback/knobs/$1
seconds=
# In one step: a knob may be taken away at any moment.
{ read -r seconds < "$knob"; } 2>/dev/null
[ -n "$seconds" ] || exit 0
timeout "$seconds" sh -c 'while [ -e "$0" ]; do sleep 0.1; done' "$knob"
exit 0
