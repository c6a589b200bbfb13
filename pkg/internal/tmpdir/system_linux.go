package tmpdir

import (
	"fmt"
	"os"

	"golang.org/x/sys/unix"
)

// mount is where a directory is mounted. The device alone does not tell a bind mount of
// the same file system; the mount does, where statx knows it (kernel 5.8).
type mount struct {
	major, minor uint32
	id           uint64
}

func stat(fd int) (mount, uint32, error) {
	var st unix.Statx_t
	if err := unix.Statx(fd, "", unix.AT_EMPTY_PATH, unix.STATX_MODE|unix.STATX_MNT_ID, &st); err != nil {
		return mount{}, 0, os.NewSyscallError("statx", err)
	}
	m := mount{major: st.Dev_major, minor: st.Dev_minor}
	if st.Mask&unix.STATX_MNT_ID != 0 {
		m.id = st.Mnt_id
	}
	return m, uint32(st.Mode) & 0o7777, nil
}

// openHere names a directory without needing permissions on it.
func openHere(dir int, name string) (int, error) {
	return unix.Openat(dir, name, unix.O_PATH|unix.O_DIRECTORY|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0)
}

// chmod goes through procfs: fchmod does not take a descriptor of this kind.
func chmod(fd int, mode uint32) error {
	return unix.Chmod(fmt.Sprintf("/proc/self/fd/%d", fd), mode)
}

// isLocal knows the file systems on a disk of this machine, each mounted by one kernel at a
// time.
func isLocal(fd int) bool {
	var st unix.Statfs_t
	if unix.Fstatfs(fd, &st) != nil {
		return false
	}
	switch st.Type {
	case unix.EXT4_SUPER_MAGIC, unix.XFS_SUPER_MAGIC, unix.BTRFS_SUPER_MAGIC, unix.F2FS_SUPER_MAGIC:
		return true
	}
	return false
}
