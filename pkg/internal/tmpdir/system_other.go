//go:build !linux

package tmpdir

import (
	"errors"

	"golang.org/x/sys/unix"
)

// mount is the file system of a directory.
type mount struct{ device uint64 }

func stat(fd int) (mount, uint32, error) {
	var st unix.Stat_t
	if err := unix.Fstat(fd, &st); err != nil {
		return mount{}, 0, err
	}
	return mount{uint64(st.Dev)}, uint32(st.Mode) & 0o7777, nil
}

// openHere gives one without permissions the owner's.
func openHere(dir int, name string) (int, error) {
	const flags = unix.O_RDONLY | unix.O_DIRECTORY | unix.O_NOFOLLOW | unix.O_CLOEXEC
	fd, err := unix.Openat(dir, name, flags, 0)
	if errors.Is(err, unix.EACCES) {
		if err := unix.Fchmodat(dir, name, 0o700, unix.AT_SYMLINK_NOFOLLOW); err != nil {
			return -1, err
		}
		return unix.Openat(dir, name, flags, 0)
	}
	return fd, err
}

func chmod(fd int, mode uint32) error { return unix.Fchmod(fd, mode) }

// isLocal does not know.
func isLocal(int) bool { return false }
