#!/usr/bin/busybox sh
# The first process of the guest. It loads the modules, brings up eth0 and rxe0, and starts the agents.
. /usr/lib/guest/base.sh
mounts
MTU=1500 ADDRESSES= SIDE=
for word in $(cat /proc/cmdline); do
    case $word in
        peer.mtu=*) MTU=${word#*=} ;;
        peer.address=*) ADDRESSES="$ADDRESSES ${word#*=}" ;;
        peer.side=*) SIDE=${word#*=} ;;
    esac
done
modules boot
ulimit -l unlimited
/usr/bin/ip link set lo up
tries=0
while [ ! -d /sys/class/net/eth0 ] && [ $tries -lt 100 ]; do tries=$((tries + 1)); sleep 0.05; done
echo 0 >/proc/sys/net/ipv6/conf/eth0/accept_dad
/usr/bin/ip link set eth0 mtu $MTU
/usr/bin/ip link set eth0 up
for address in $ADDRESSES; do /usr/bin/ip address add $address dev eth0; done
if [ -n "$SIDE" ]; then
    /usr/bin/ip link set eth1 up
    /usr/bin/ip address add $SIDE dev eth1
fi
rdma link add rxe0 type rxe netdev eth0
modules later
agents
echo "guest: ready"
while :; do sleep 3600; done
