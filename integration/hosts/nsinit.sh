# Becomes systemd as PID 1 of the namespaces it was started in.
#   $1 root file system, only read    $2 empty directory to mount on    $3 terminal
# Everything mounted here is in our own mount namespace and goes with it.
set -eu
mount --make-rprivate /
mount -t tmpfs -o mode=0755,size=4g sbxtest "$2"
mkdir "$2/upper" "$2/work" "$2/root"
root=$2/root
if ! mount -t overlay -o "lowerdir=$1,upperdir=$2/upper,workdir=$2/work" sbxtest "$root"; then
	mount --bind "$root" "$root"
	cp -a "$1/." "$root"
fi

mount -t proc proc "$root/proc"
# root in here is root out there: no sysctl or sysfs knob of the machine may turn.
for knobs in sys sysrq-trigger; do
	[ -e "$root/proc/$knobs" ] || continue
	mount --bind "$root/proc/$knobs" "$root/proc/$knobs"
	mount -o remount,bind,ro "$root/proc/$knobs"
done
mount -t sysfs -o ro sysfs "$root/sys"
# The cgroup namespace makes the cgroup we were started in the root of this one.
mount -t cgroup2 cgroup2 "$root/sys/fs/cgroup"
mount -t tmpfs -o mode=0755 tmpfs "$root/run"
mount -t tmpfs -o mode=1777 tmpfs "$root/tmp"
mount -t tmpfs -o mode=0755 tmpfs "$root/dev"
for node in null zero full random urandom tty fuse; do
	[ -e "/dev/$node" ] || continue
	: >"$root/dev/$node"
	mount --bind "/dev/$node" "$root/dev/$node"
done
: >"$root/dev/console"
mount --bind "$3" "$root/dev/console"
mkdir "$root/dev/pts" "$root/dev/shm"
mount -t devpts -o newinstance,ptmxmode=0666,mode=0620,gid=5 devpts "$root/dev/pts"
mount -t tmpfs -o mode=1777 tmpfs "$root/dev/shm"
ln -s pts/ptmx "$root/dev/ptmx"
ln -s /proc/self/fd "$root/dev/fd"
ln -s fd/0 "$root/dev/stdin"
ln -s fd/1 "$root/dev/stdout"
ln -s fd/2 "$root/dev/stderr"

# The devices are the machine's, and udev would act on them; nobody logs in at the
# console.
mkdir -p "$root/run/systemd/system"
for unit in systemd-udevd.service systemd-udevd-kernel.socket systemd-udevd-control.socket systemd-udev-trigger.service console-getty.service; do
	ln -s /dev/null "$root/run/systemd/system/$unit"
done

hostname sbxtest
chroot "$root" ip link set lo up
# Not by chroot(1), in which nobody may make a user namespace.
mkdir "$root/run/machine"
cd "$root"
pivot_root . run/machine
umount -l /run/machine
rmdir /run/machine
exec env -i container=sbxtest PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin \
	setpriv --bounding-set=-sys_module,-sys_time,-sys_rawio,-syslog \
	/lib/systemd/systemd --log-target=console --unit=multi-user.target
