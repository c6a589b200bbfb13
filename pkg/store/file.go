package store

import (
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

// MaxRecord is the most bytes that a record may have; larger files are bad
// records.
const MaxRecord = 1 << 20

// StaleAge is how old a temporary file must be before a later writer takes it
// for the remains of a killed one.
const StaleAge = time.Minute

const tmpPrefix = ".tmp-"

func tmpName(dir string) string {
	var buf [8]byte
	rand.Read(buf[:])
	return filepath.Join(dir, tmpPrefix+hex.EncodeToString(buf[:]))
}

// noEINTR repeats a call that a signal cut short (file systems in user space
// answer so even with SA_RESTART).
func noEINTR[T any](f func() (T, error)) (T, error) {
	for {
		v, err := f()
		if !errors.Is(err, unix.EINTR) {
			return v, err
		}
	}
}

// openFile is open(2) without Go's poller, never blocking and never following a
// symlink at the end of the path. The caller closes the descriptor.
func openFile(path string, flags int) (int, error) {
	fd, err := noEINTR(func() (int, error) {
		return unix.Open(path, flags|unix.O_CLOEXEC|unix.O_NOFOLLOW|unix.O_NONBLOCK|unix.O_NOCTTY, 0o600)
	})
	if err != nil {
		if errors.Is(err, unix.ELOOP) {
			return -1, &fs.PathError{Op: "open", Path: path, Err: fmt.Errorf("%w: a symlink: %w", ErrNotRegular, err)}
		}
		return -1, &fs.PathError{Op: "open", Path: path, Err: err}
	}
	return fd, nil
}

// checkFile refuses a descriptor that is not a regular file of uid.
func checkFile(path string, fd, uid int) (size int64, err error) {
	var st unix.Stat_t
	if err := unix.Fstat(fd, &st); err != nil {
		return 0, &fs.PathError{Op: "fstat", Path: path, Err: err}
	}
	if st.Mode&unix.S_IFMT != unix.S_IFREG {
		return 0, ErrNotRegular
	}
	if int(st.Uid) != uid {
		return 0, fmt.Errorf("%w: owned by uid %d, not %d", ErrForeign, st.Uid, uid)
	}
	return st.Size, nil
}

// readRecord reads a whole record file of uid.
func readRecord(path string, uid int) ([]byte, error) { return readUpTo(path, uid, MaxRecord) }

// readUpTo reads a whole file of uid that has at most so many bytes.
func readUpTo(path string, uid int, most int64) ([]byte, error) {
	fd, err := openFile(path, unix.O_RDONLY)
	if err != nil {
		return nil, err
	}
	defer unix.Close(fd)
	size, err := checkFile(path, fd, uid)
	if err != nil {
		return nil, err
	}
	if size > most {
		return nil, fmt.Errorf("%w: %d bytes, a record has at most %d", ErrTooLarge, size, most)
	}
	// One byte more than its size shows in one read whether it grew.
	buf := make([]byte, 0, size+1)
	for int64(len(buf)) <= most {
		if len(buf) == cap(buf) {
			buf = append(buf, 0)[:len(buf)]
		}
		n, err := noEINTR(func() (int, error) { return unix.Read(fd, buf[len(buf):cap(buf)]) })
		if err != nil {
			return nil, &fs.PathError{Op: "read", Path: path, Err: err}
		}
		if n == 0 {
			return buf, nil
		}
		buf = buf[:len(buf)+n]
	}
	return nil, fmt.Errorf("%w: more than %d bytes", ErrTooLarge, most)
}

// writeTemp writes data to a new temporary file in dir. On failure nothing is
// left of it.
func writeTemp(dir string, data []byte) (path string, err error) {
	path = tmpName(dir)
	f, err := os.OpenFile(path, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return "", err
	}
	_, err = f.Write(data)
	if err = errors.Join(err, f.Close()); err != nil {
		os.Remove(path)
		return "", err
	}
	return path, nil
}

// writeRecord puts data in place of dir/name, whole or not at all.
func writeRecord(dir, name string, data []byte) error {
	for try := 0; ; try++ {
		tmp, err := writeTemp(dir, data)
		if err != nil {
			return err
		}
		err = os.Rename(tmp, filepath.Join(dir, name))
		if err == nil {
			return nil
		}
		os.Remove(tmp)
		// A clock that jumped makes another writer take our file for a stale
		// one. That happens once; a directory that is gone fails in writeTemp.
		if !errors.Is(err, fs.ErrNotExist) || try > 0 {
			return err
		}
	}
}

// sweepTemp removes what killed writers left in dir. It is housekeeping:
// failures change nothing for the caller.
func sweepTemp(dir string, entries []fs.DirEntry) {
	for _, e := range entries {
		if !strings.HasPrefix(e.Name(), tmpPrefix) {
			continue
		}
		if info, err := e.Info(); err == nil && time.Since(info.ModTime()) > StaleAge {
			os.RemoveAll(filepath.Join(dir, e.Name()))
		}
	}
}
