package tmpdir

import (
	"encoding/json"
	"errors"
	"io"
	"io/fs"
	"math/rand/v2"
	"os"
	"path/filepath"
	"time"

	"golang.org/x/sys/unix"
)

// markFile tells whose a directory is when its record is lost.
const markFile = ".sessionbox"

// Mark says which session a directory belongs to. Ids are only unique among the
// records of one state directory, whose path may mean another one in a container: the
// inode decides, and the boot id says which kernel counted it.
type Mark struct {
	Session  string `json:"session"`
	StateDir string `json:"state_dir"`
	Device   uint64 `json:"device"` // of StateDir
	Inode    uint64 `json:"inode"`
	Boot     string `json:"boot"`
}

// NewMark is the mark of a session with records in stateDir.
func NewMark(session, stateDir, boot string) Mark {
	m := Mark{Session: session, StateDir: stateDir, Boot: boot}
	var st unix.Stat_t
	if unix.Stat(stateDir, &st) == nil {
		m.Device, m.Inode = uint64(st.Dev), st.Ino //nolint:unconvert // it is an int32 on darwin
	}
	return m
}

func (m Mark) write(dir string) error {
	b, err := json.Marshal(m)
	if err != nil {
		return err
	}
	f, err := os.OpenFile(filepath.Join(dir, markFile), os.O_WRONLY|os.O_CREATE|os.O_EXCL|unix.O_NOFOLLOW, 0o600)
	if err != nil {
		return err
	}
	_, err = f.Write(append(b, '\n'))
	return errors.Join(err, f.Close())
}

// sharedFile says that another session may use the directory as well.
const sharedFile = ".sessionbox-shared"

// Share notes that another session may use the directory.
func Share(dir string) error {
	f, err := os.OpenFile(filepath.Join(dir, sharedFile), os.O_WRONLY|os.O_CREATE|unix.O_NOFOLLOW, 0o600)
	if err != nil {
		return err
	}
	return f.Close()
}

// Shared says whether that was noted.
func Shared(dir string) bool {
	_, err := os.Lstat(filepath.Join(dir, sharedFile))
	return err == nil
}

// Found is a directory with a mark.
type Found struct {
	Path string
	Mark Mark
	Made time.Time
	// Local says that the file system is one that a single kernel mounts: a mark of
	// another boot was made by one that is no more.
	Local bool
}

// Some reads the marks of up to n directories beside dir, chosen at random: whoever
// does this now and then has seen all of them after a while, and none pays for many.
func Some(dir string, uid, n int) []Found {
	top := filepath.Dir(dir)
	parent, err := openParent(top, uid)
	if err != nil {
		return nil
	}
	f := os.NewFile(uintptr(parent), top)
	defer f.Close()
	names, _ := f.Readdirnames(-1)
	rand.Shuffle(len(names), func(i, j int) { names[i], names[j] = names[j], names[i] })
	local := isLocal(parent)
	var list []Found
	for _, name := range names[:min(n, len(names))] {
		if name == filepath.Base(dir) {
			continue
		}
		if m, made, err := readMark(parent, name); err == nil && m.Session == name {
			list = append(list, Found{Path: filepath.Join(top, name), Mark: m, Made: made, Local: local})
		}
	}
	return list
}

func readMark(parent int, name string) (Mark, time.Time, error) {
	dir, err := unix.Openat(parent, name, unix.O_RDONLY|unix.O_DIRECTORY|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0)
	if err != nil {
		return Mark{}, time.Time{}, err
	}
	defer unix.Close(dir)
	fd, err := unix.Openat(dir, markFile, unix.O_RDONLY|unix.O_NOFOLLOW|unix.O_NONBLOCK|unix.O_CLOEXEC, 0)
	if err != nil {
		return Mark{}, time.Time{}, err
	}
	f := os.NewFile(uintptr(fd), markFile)
	defer f.Close()
	fi, err := f.Stat()
	if err == nil && !fi.Mode().IsRegular() {
		err = fs.ErrInvalid
	}
	if err != nil {
		return Mark{}, time.Time{}, err
	}
	b, err := io.ReadAll(io.LimitReader(f, 1<<16))
	if err != nil {
		return Mark{}, time.Time{}, err
	}
	var m Mark
	return m, fi.ModTime(), json.Unmarshal(b, &m)
}
