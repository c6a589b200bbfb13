package tasklog

import (
	"os"
	"path/filepath"
	"strconv"
	"time"

	"golang.org/x/sys/unix"
)

// Kept is how long a log stays after the last write to it.
const Kept = 31 * 24 * time.Hour

// sweepEvery is how often it is worth looking for old ones.
const sweepEvery = 24 * time.Hour

// Sweep removes logs that nobody has written to for longer than [Kept], once a day at
// most, and whatever they leave empty. It is housekeeping: it fails silently.
func Sweep(history string, now time.Time) {
	top, err := os.Open(filepath.Join(history, place))
	if err != nil {
		return
	}
	defer top.Close()
	mark, err := openAt(top, "swept", unix.O_RDWR|unix.O_CREAT, regular)
	if err != nil {
		return
	}
	defer mark.Close()
	if fi, err := mark.Stat(); err != nil || fi.Size() > 0 && now.Sub(fi.ModTime()) < sweepEvery {
		return
	}
	mark.Truncate(0)
	if _, err := mark.Write([]byte("\n")); err != nil {
		return // on a full disk the next one tries
	}
	sessions, _ := top.Readdirnames(-1)
	for _, session := range sessions {
		sweepSession(history, top, session, now)
	}
}

func sweepSession(history string, top *os.File, session string, now time.Time) {
	at, err := below(top, session, false)
	if err != nil {
		return
	}
	defer at.Close()
	tasks, _ := at.Readdirnames(-1)
	for _, name := range tasks {
		if n, err := strconv.Atoi(name); err == nil {
			if d, err := Open(history, session, n); err == nil {
				if now.Sub(d.written()) > Kept && !d.Live() {
					d.remove(at, name)
				}
				d.Close()
			}
		}
	}
	unix.Unlinkat(int(top.Fd()), session, unix.AT_REMOVEDIR) // if it is empty
}

// written is when a log was last written to.
func (d *Dir) written() time.Time {
	fi, err := d.f.Stat()
	if err != nil {
		return time.Now()
	}
	last := fi.ModTime() // it may have been made just now
	entries, err := d.f.ReadDir(-1)
	if err != nil {
		return time.Now()
	}
	for _, e := range entries {
		if fi, err := e.Info(); err == nil && fi.ModTime().After(last) {
			last = fi.ModTime()
		}
	}
	return last
}

// remove removes what is ours in a log, and its directory if that is empty then.
func (d *Dir) remove(at *os.File, name string) {
	starts, err := d.starts()
	if err != nil {
		return
	}
	for _, start := range starts {
		d.removeSegment(start)
	}
	unix.Unlinkat(int(d.f.Fd()), lockName, 0)
	unix.Unlinkat(int(at.Fd()), name, unix.AT_REMOVEDIR)
}

// Remove removes the log of a task that was not started.
func Remove(history, session string, task int) {
	d, err := Open(history, session, task)
	if err != nil {
		return
	}
	defer d.Close()
	if at, err := os.Open(filepath.Dir(d.Path())); err == nil {
		d.remove(at, strconv.Itoa(task))
		at.Close()
	}
}
