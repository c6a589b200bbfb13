package watch

import (
	"context"
	"encoding/binary"
	"errors"
	"os"
	"time"

	"golang.org/x/sys/unix"
)

// Watcher waits for changes in a directory.
type Watcher struct {
	dir string
	f   *os.File // inotify; nil while there is no directory to watch
}

// New begins to watch a directory, which need not exist yet.
func New(dir string) *Watcher {
	w := &Watcher{dir: dir}
	w.arm()
	return w
}

// arm sets up inotify. It fails when the directory does not exist yet, and where
// the user has no instance or watch left.
func (w *Watcher) arm() {
	fd, err := unix.InotifyInit1(unix.IN_CLOEXEC | unix.IN_NONBLOCK)
	if err != nil {
		return
	}
	const mask = unix.IN_MODIFY | unix.IN_CLOSE_WRITE | unix.IN_CREATE | unix.IN_MOVED_TO | unix.IN_DELETE_SELF | unix.IN_MOVE_SELF | unix.IN_ONLYDIR
	if _, err := unix.InotifyAddWatch(fd, w.dir, mask); err != nil {
		unix.Close(fd)
		return
	}
	w.f = os.NewFile(uintptr(fd), "inotify")
}

// safetyInterval bounds what an event that never comes can cost: network and
// user-space file systems do not report what others write.
const safetyInterval = 2 * time.Second

// Wait returns when something may have changed, or ctx has ended.
func (w *Watcher) Wait(ctx context.Context) {
	if w.f == nil {
		pause(ctx, pollInterval)
		w.arm() // the caller looks after this, so nothing is missed in between
		return
	}
	f := w.f
	if f.SetReadDeadline(time.Now().Add(safetyInterval)) != nil {
		w.Close()
		return
	}
	// A deadline in the past is how a read is woken.
	stop := context.AfterFunc(ctx, func() { f.SetReadDeadline(time.Unix(1, 0)) })
	defer stop()
	var buf [4096]byte
	n, err := f.Read(buf[:])
	if err != nil {
		if !errors.Is(err, os.ErrDeadlineExceeded) {
			w.Close()
		}
		return
	}
	if selfGone(buf[:n]) {
		w.Close() // looked for again by its name
	}
}

// selfGone looks for the end of the watched directory among inotify's events.
func selfGone(events []byte) bool {
	for len(events) >= unix.SizeofInotifyEvent {
		mask := binary.NativeEndian.Uint32(events[4:])
		if mask&(unix.IN_DELETE_SELF|unix.IN_MOVE_SELF|unix.IN_IGNORED|unix.IN_UNMOUNT) != 0 {
			return true
		}
		size := unix.SizeofInotifyEvent + int(binary.NativeEndian.Uint32(events[12:]))
		if size > len(events) {
			break
		}
		events = events[size:]
	}
	return false
}

// Close ends the watch.
func (w *Watcher) Close() {
	if w.f != nil {
		w.f.Close()
		w.f = nil
	}
}
