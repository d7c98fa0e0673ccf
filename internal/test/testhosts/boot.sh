# Runs as process 1 of a new host, in new namespaces, and ends as its sshd.
# $1 host name, $2 its folder, $3 root's home, $4 folder of all clusters, $5 sshd
set -eu
name=$1 dir=$2 home=$3 state=$4 sshd=$5

mount --make-rprivate /
mount -t proc proc /proc
mount -t sysfs sysfs /sys
echo "$name" >/proc/sys/kernel/hostname
mount --bind "$dir/boot_id" /proc/sys/kernel/random/boot_id
for file in hosts machine-id hostname; do
	if [ -e "/etc/$file" ]; then mount --bind "$dir/$file" "/etc/$file"; fi
done
mount --bind "$dir/ssh" /etc/ssh
mount --bind "$dir/bin" /usr/local/bin
mount --bind "$dir/home" "$home"
mount -t tmpfs -o mode=1777 tmpfs /tmp
mount -t tmpfs -o mode=1777 tmpfs /dev/shm
mount -t tmpfs -o mode=755 tmpfs /run
mkdir -p /run/sshd /run/bin /run/gpus
mount --bind "$dir/gpus" /run/gpus

# What the machine itself has of GPUs is not the host's.
if [ -e /proc/driver/nvidia ]; then mount -t tmpfs tmpfs /proc/driver/nvidia; fi
if [ -e /usr/bin/nvidia-smi ]; then mount --bind "$dir/nothing" /usr/bin/nvidia-smi; fi

# The folders of the clusters vanish, but programs built for the hosts stay.
mount --bind "$state/bin" /run/bin
mount -t tmpfs -o mode=755 tmpfs "$state"
mkdir "$state/bin"
mount --move /run/bin "$state/bin"
mount -o remount,bind,ro "$state/bin"
cd /

# The links are made from outside, which says so with a line of commands each.
ip -batch -
exec "$sshd" -D -e -f /etc/ssh/sshd_config </dev/null
