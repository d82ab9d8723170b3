#!/bin/bash
# Pid 1 of the node: prepares its private mounts and network, then only reaps and watches the clock.
# Environment: STATE NAME BIN TTL NODE_IP NODE_GATEWAY CLUSTER_DNS POD_CIDR
set -euo pipefail
trap 'echo "init failed at line $LINENO"' ERR

# The old /proc is still mounted, so this is the pid that the outside sees; and the time it was started.
read -r -a self </proc/self/stat
echo "${self[0]} ${self[21]}" >"$STATE/init.tmp"
mv "$STATE/init.tmp" "$STATE/init.pid"

hostname "$NAME"
mount -t proc proc /proc
# An own /sys (of this network namespace). The copies of the old mounts go first: the kubelet finds them otherwise.
umount -R -l /sys
mount -t sysfs sysfs /sys

if [ "$CGROUP" = 2 ]; then
  # The cgroup namespace begins at a group made for this node. Controllers can only be passed on by a group
  # without processes, so everything moves to a leaf.
  mount -t cgroup2 cgroup2 /sys/fs/cgroup
  mkdir -p /sys/fs/cgroup/init "/sys/fs/cgroup/$NAME"
  echo $$ >/sys/fs/cgroup/init/cgroup.procs
  # Refused until the keeper has taken its own processes out.
  for c in $(cat /sys/fs/cgroup/cgroup.controllers); do
    for _ in $(seq 1 50); do
      { echo "+$c" >/sys/fs/cgroup/cgroup.subtree_control; } 2>/dev/null && break
      sleep 0.1
    done
  done
else
  # Every hierarchy, the named one too: container runtimes give up on a missing one.
  mount -t tmpfs -o mode=755 tmpfs /sys/fs/cgroup
  while IFS=: read -r _ c _; do
    [ -n "$c" ] || continue
    d=/sys/fs/cgroup/${c#name=}
    mkdir -p "$d"
    case $c in
      name=*) mount -t cgroup -o "none,$c" cgroup "$d" ;;
      *) mount -t cgroup -o "$c" cgroup "$d" ;;
    esac
    case $c in *,*) for x in ${c//,/ }; do ln -s "$c" "/sys/fs/cgroup/$x"; done ;; esac
    mkdir -p "$d/$NAME"
  done </proc/self/cgroup
  for f in cpus mems; do
    cat "/sys/fs/cgroup/cpuset/cpuset.$f" >"/sys/fs/cgroup/cpuset/$NAME/cpuset.$f"
  done
fi

# Nothing may be written outside the state folder.
mount -t tmpfs -o mode=755 tmpfs /run
for d in etc var opt; do
  mkdir -p "$STATE/overlay/$d/upper" "$STATE/overlay/$d/work"
  mount -t overlay overlay -o "lowerdir=/$d,upperdir=$STATE/overlay/$d/upper,workdir=$STATE/overlay/$d/work" "/$d"
done
# Where the controller manager provisions hostPath volumes.
mkdir -p /tmp/hostpath_pv "$STATE/volumes"
mount --bind "$STATE/volumes" /tmp/hostpath_pv
mount --make-rshared /

# No way out of this network namespace: a bridge without ports carries the node's address, and a default route
# to nobody exists because routes are looked up before Service addresses are translated.
ip link set lo up
ip link add node0 type bridge
ip addr add "$NODE_IP/24" dev node0
ip link set node0 up
ip route add default via "$NODE_GATEWAY" dev node0
echo 1 >/proc/sys/net/ipv4/ip_forward
[ ! -e /proc/sys/net/ipv6/conf/all/disable_ipv6 ] || echo 1 >/proc/sys/net/ipv6/conf/all/disable_ipv6

mkdir -p /etc/cni/net.d /opt/cni/bin /var/log/pods /var/log/containers
: >/run/resolv.conf
rm -f /etc/resolv.conf /etc/hosts
printf 'nameserver %s\nsearch default.svc.cluster.local svc.cluster.local cluster.local\noptions ndots:5 timeout:1 attempts:2\n' "$CLUSTER_DNS" >/etc/resolv.conf
printf '127.0.0.1 localhost\n%s %s\n' "$NODE_IP" "$NAME" >/etc/hosts
for p in ptp host-local portmap loopback; do ln -sf "$BIN/$p" "/opt/cni/bin/$p"; done
# Other network configurations of this machine, seen through the overlay, would come first.
rm -f /etc/cni/net.d/*
cat >/etc/cni/net.d/10-node.conflist <<K
{"cniVersion": "1.0.0", "name": "node", "plugins": [
  {"type": "ptp", "ipMasq": false, "mtu": 1500, "ipam": {"type": "host-local", "dataDir": "/run/cni",
   "routes": [{"dst": "0.0.0.0/0"}], "ranges": [[{"subnet": "$POD_CIDR"}]]}},
  {"type": "portmap", "capabilities": {"portMappings": true}, "backend": "nftables"}]}
K
touch "$STATE/prepared"

# Dead man's switch: when pid 1 ends, everything in the namespaces ends.
end=$((SECONDS + TTL))
while [ $SECONDS -lt $end ]; do
  sleep 5 &
  wait $! || true
done
