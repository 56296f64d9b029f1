#!/bin/sh
# reaper.sh RUN [--when-stdin-ends]: ends what one run of the harness left behind: the processes that it recorded,
# with their children, then its ports and its folder.
#
# As a watchdog it waits for the end of its input. The harness holds the other end of that pipe, and the kernel
# closes it however the harness ends, SIGKILL included. It is a shell script because one runs beside every test
# process, and because it must outlive the runtime of the thing that it watches.
#
# The braces make the shell read all of it before it begins: the file may be changed while it waits.
{
run=$1

if [ "$2" = --when-stdin-ends ]; then
  trap '' INT TERM HUP QUIT
  while read -r _; do :; done
fi

# Sets `parent` and `started` of a process, or fails. The name of the program, which may contain anything, ends at
# the last parenthesis.
look_at() {
  { read -r line <"/proc/$1/stat"; } 2>/dev/null || return 1
  set -- ${line##*) }
  parent=$2
  started=${20}
}

# Whoever has not written itself down by now cannot any more, and ends itself (launch.sh). If the records are gone
# already, an earlier reaper was interrupted after this step, or another is at work beside us.
mv "$run/processes" "$run/reaped" 2>/dev/null

ours=' '
for record in "$run"/reaped/*; do
  read -r pid recorded <"$record" || continue
  # The same id with another start time is a stranger who was given the number later.
  if look_at "$pid" && [ "$started" = "$recorded" ]; then
    # Stopped first, so that it cannot have new children while we look for them.
    kill -STOP "$pid" && ours="$ours$pid "
  fi
done 2>/dev/null

before=
while [ "$before" != "$ours" ]; do
  before=$ours
  for folder in /proc/[0-9]*; do
    pid=${folder#/proc/}
    look_at "$pid" || continue
    case $ours in *" $pid "*) continue ;; esac
    case $ours in *" $parent "*) kill -STOP "$pid" && ours="$ours$pid " ;; esac
  done
done 2>/dev/null
[ "$ours" = ' ' ] || kill -KILL $ours 2>/dev/null

# PostgreSQL keeps one small segment of shared memory, named in this file, which outlives a SIGKILL.
for postmaster in "$run"/*/data/postmaster.pid; do
  [ -f "$postmaster" ] || continue
  set -- $(sed -n 7p "$postmaster")
  [ -n "$2" ] && ipcrm -m "$2" 2>/dev/null
done

for port in "$run"/../ports/*; do
  [ "$(readlink "$port")" = "../${run##*/}" ] && rm -f "$port"
done

# A process that is about to die may still create a file.
for _ in 1 2 3 4 5 6 7 8 9 10; do
  rm -rf "$run" 2>/dev/null
  [ -e "$run" ] || break
  sleep 0.1
done
exit
}
