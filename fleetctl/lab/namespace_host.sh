#!/bin/sh
# The first process of a lab host of namespaces, until systemd takes its place.
#
#   namespace_host.sh HOST_DIR LAB_DIR NAME ADDRESS GATEWAY SYSTEMD
#
# It runs in new mount, pid, uts, ipc, net and cgroup namespaces. The controller and it meet
# three times: it writes `unshared`, the controller plugs the cable in and answers `plugged`,
# it configures the network and writes `networked`. When the controller dies, `read` ends it.
set -eu
host_dir=$1 lab_dir=$2 name=$3 address=$4 gateway=$5 systemd=$6

echo unshared
read -r answer
[ "$answer" = plugged ]

ip link set lo up
ip address add "$address/24" dev eth0
ip link set eth0 up
ip route add default via "$gateway"
echo networked
# from here on the controller only watches the network
exec >&2 </dev/null

cd "$host_dir"
# relative paths, because a comma or colon in a path would end the option
mount -t overlay -o lowerdir=/,upperdir=disk/upper,workdir=disk/work fleetctl-lab root
cd root

mount -t tmpfs -o mode=755,nosuid,nodev tmpfs run
mount -t tmpfs -o mode=1777,nosuid,nodev tmpfs tmp
mkdir -p run/lock run/sshd

# the interpreter that serves, where the mounts above or an empty home would hide it
while IFS= read -r shared; do
    mkdir -p "./$shared"
    mount --bind "$shared" "./$shared"
    mount -o remount,bind,ro "./$shared"
done <"$host_dir/shared_paths"

# keys and disks of the lab are none of the host's business
if [ -d "./$lab_dir" ]; then
    mount -t tmpfs -o ro,mode=000,size=4k tmpfs "./$lab_dir"
fi

mount -t proc -o nosuid,nodev,noexec proc proc
mount -t sysfs -o ro,nosuid,nodev,noexec sysfs sys
mount -t cgroup2 -o nosuid,nodev,noexec cgroup2 sys/fs/cgroup

# kernel settings are the machine's: a host may read them, and write those of its own network
mount --bind proc/sys proc/sys
mount -o remount,bind,ro proc/sys
mount --bind proc/sys/net proc/sys/net
mount -o remount,bind,rw proc/sys/net
if [ -e proc/sysrq-trigger ]; then
    mount --bind proc/sysrq-trigger proc/sysrq-trigger
    mount -o remount,bind,ro proc/sysrq-trigger
fi
# every boot has an id of its own, as on a real machine
cat /proc/sys/kernel/random/uuid >"$host_dir/boot_id"
mount --bind "$host_dir/boot_id" proc/sys/kernel/random/boot_id
mount -o remount,bind,ro proc/sys/kernel/random/boot_id

mount -t tmpfs -o mode=755,nosuid tmpfs dev
for device in null zero full random urandom tty; do
    : >"dev/$device"
    mount --bind "/dev/$device" "dev/$device"
done
mkdir dev/pts dev/shm
mount -t devpts -o newinstance,ptmxmode=0666,mode=620,gid=5,nosuid,noexec devpts dev/pts
mount -t tmpfs -o mode=1777,nosuid,nodev tmpfs dev/shm
ln -s pts/ptmx dev/ptmx
ln -s /proc/self/fd dev/fd
ln -s fd/0 dev/stdin
ln -s fd/1 dev/stdout
ln -s fd/2 dev/stderr

hostname "$name"
mkdir run/machine
pivot_root . run/machine
cd /
umount -l /run/machine
rmdir /run/machine

# root on a host must not load modules into, or set the clock of, the machine all hosts share
exec env -i container=fleetctl-lab PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin \
    setpriv --bounding-set=-sys_module,-sys_rawio,-sys_time \
    "$systemd" --unit=multi-user.target
