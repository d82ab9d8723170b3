#!/bin/bash
# keeper.sh hold|clean: keeps a node while its owner lives, and removes everything of it afterwards.
#   hold   starts the node; ends it when standard input closes (the owner has died, however), on SIGTERM, or after
#          TTL seconds. With KEEP=1 standard input does not count.
#   clean  removes what a node left whose keeper is gone.
# Environment: STATE NAME BIN TTL KEEP CGROUP INIT, and what init.sh wants
set -u

clean() {
  # Only ever the process that was recorded: same pid and same start time.
  if read -r pid start 2>/dev/null <"$STATE/init.pid" && read -r -a f 2>/dev/null <"/proc/$pid/stat" &&
    [ "${f[21]}" = "$start" ]; then
    kill -9 "$pid" 2>/dev/null
    for _ in $(seq 1 200); do [ -e "/proc/$pid" ] || break; sleep 0.05; done
  fi
  if [ -s "$STATE/cgroups" ]; then
    for _ in $(seq 1 100); do
      left=0
      while read -r d; do
        [ -d "$d" ] || continue
        find "$d" -depth -type d -exec rmdir {} + 2>/dev/null
        [ ! -d "$d" ] || left=1
      done <"$STATE/cgroups"
      [ $left = 1 ] || break
      sleep 0.1
    done
  fi
  for _ in $(seq 1 50); do rm -rf "$STATE" 2>/dev/null && break; sleep 0.1; done
  # The mount point of hostPath volumes, when no other node may be using it.
  rmdir "$(dirname "$STATE")" 2>/dev/null && rmdir /tmp/hostpath_pv 2>/dev/null
  [ ! -e "$STATE" ]
}

[ "$1" = hold ] || { clean; exit; }
trap 'clean; exit' TERM INT HUP

: >"$STATE/cgroups"
if [ "$CGROUP" = 2 ]; then
  mkdir -p "/sys/fs/cgroup/$NAME"
  echo $$ >"/sys/fs/cgroup/$NAME/cgroup.procs"
  echo "/sys/fs/cgroup/$NAME" >>"$STATE/cgroups"
else
  while IFS=: read -r _ c path; do
    c=${c#name=}
    [ -z "$c" ] || echo "/sys/fs/cgroup/$c${path%/}/$NAME" >>"$STATE/cgroups"
  done </proc/self/cgroup
fi
unshare --mount --propagation private --pid --net --uts --ipc --cgroup --fork --kill-child \
  bash "$INIT" </dev/null >"$STATE/log/init.log" 2>&1 &
node=$!
if [ "$CGROUP" = 2 ]; then
  # Out of the way: a group with processes of its own can be neither passed on nor removed.
  while [ ! -s "$STATE/init.pid" ] && kill -0 $node 2>/dev/null; do sleep 0.05; done
  for p in $$ $node; do echo "$p" >/sys/fs/cgroup/cgroup.procs; done
fi
if [ "$KEEP" = 1 ]; then
  wait $node
else
  # Returns at the end of the input, whatever ended the owner; a background read would not be interrupted by a trap.
  read -r -t "$TTL" _ || true
fi
clean
