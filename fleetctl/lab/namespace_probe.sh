#!/bin/sh
# Tries once what a host of namespaces needs, and leaves nothing behind.
#
#   namespace_probe.sh DIRECTORY CGROUP [tmpfs]
#
# Runs in new mount, pid, uts, ipc, net and cgroup namespaces. DIRECTORY holds disk/upper,
# disk/work and root, with an opaque `etc` in disk/upper; `tmpfs` tries the disk on a tmpfs.
set -eu
directory=$1 cgroup=$2 disk=${3:-directory}

mkdir "$cgroup/fleetctl-probe-$$"
rmdir "$cgroup/fleetctl-probe-$$"
ip link add probe0 type bridge
ip link add probe1 type veth peer name probe2

cd "$directory"
if [ "$disk" = tmpfs ]; then
    mount -t tmpfs fleetctl-lab disk
    mkdir disk/upper disk/work
fi
mount -t overlay -o lowerdir=/,upperdir=disk/upper,workdir=disk/work fleetctl-lab root
if [ "$disk" = directory ] && [ -e root/etc/passwd ]; then
    echo "the file system of $directory keeps no overlay attributes" >&2
    exit 1
fi
mount -t proc proc root/proc
mount -t sysfs -o ro sysfs root/sys
mount -t cgroup2 cgroup2 root/sys/fs/cgroup
mount -t tmpfs tmpfs root/dev
