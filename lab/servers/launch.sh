#!/bin/sh
# launch.sh RECORD PROGRAM [ARGUMENTS]: writes down who we are, then becomes the program. The identity (process id
# and start time) does not change with exec, so there is no moment at which a server runs unrecorded.
record=$1
shift
read -r line <"/proc/$$/stat"
started() {
  set -- ${1##*) }
  echo "${20}"
}
echo "$$ $(started "$line")" >"$record" || exit 1
# A reaper that has come meanwhile has taken the records away, and may have read ours too early: then there is no server
# either. One that comes later finds the whole record.
[ -e "$record" ] || exit 1
exec "$@"
