#!/usr/bin/busybox sh
# First process of the guest: loads the modules, brings eth0 and rxe0 up, starts the agents.
# Programs are named by their whole path where this shell has its own idea of them.
export PATH=/usr/bin HOME=/root TERM=dumb
mount -t devtmpfs dev /dev
mount -t proc proc /proc
mount -t sysfs sys /sys
mkdir -p /dev/shm /dev/pts
mount -t tmpfs shm /dev/shm
mount -t devpts pts /dev/pts
exec </dev/console >/dev/console 2>&1
MTU=1500 ADDRESSES= SIDE=
for word in $(cat /proc/cmdline); do
    case $word in
        peer.mtu=*) MTU=${word#*=} ;;
        peer.address=*) ADDRESSES="$ADDRESSES ${word#*=}" ;;
        peer.side=*) SIDE=${word#*=} ;;
    esac
done
for module in $(cat /modules/boot); do insmod /modules/$module.ko || echo "guest: no $module"; done
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
for module in $(cat /modules/later); do insmod /modules/$module.ko; done
tries=0
while [ -z "$(cat /sys/class/virtio-ports/*/name 2>/dev/null)" ] && [ $tries -lt 200 ]; do tries=$((tries + 1)); sleep 0.02; done
for port in /sys/class/virtio-ports/*; do
    while :; do agent /dev/${port##*/}; sleep 1; done &
done
echo "guest: ready"
while :; do sleep 3600; done
