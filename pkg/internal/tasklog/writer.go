package tasklog

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"time"

	"golang.org/x/sys/unix"
)

// Segments is how many files a log has at most. With more of them less is lost at
// once when the oldest one goes.
const Segments = 4

// Sizes of a log: it never takes more than its maximum, and holds three quarters
// of it once it was full.
const (
	DefaultMax = 16 << 20
	// LeastMax leaves room for a whole part in each segment.
	LeastMax = 128 << 10
)

// Writer appends to a log. It does not fail: what cannot be written is counted and
// noted in the log as soon as that can be written again.
type Writer struct {
	dir     *Dir
	lock    *os.File
	segment int64 // the most that one has

	f      *os.File
	starts []int64 // of all segments, oldest first; the last one is f's
	end    int64   // of the log

	pending [2][]byte // what has no newline yet
	stamp   []byte    // the time of what is being written
	buf     []byte    // lines for f
	lost    [2]int64  // bytes that are not in the log and not noted there either
	err     error     // why the last one could not be written
}

// Create makes the log of a task, or goes on with one that is there, and marks it as
// [Dir.Live] until it is closed.
func Create(history, session string, task int, most int64) (*Writer, error) {
	if most < LeastMax {
		return nil, fmt.Errorf("a log of %d bytes is too small, the least is %d", most, LeastMax)
	}
	dir, err := open(history, session, task, true)
	if err != nil {
		return nil, err
	}
	w := &Writer{dir: dir, segment: most / Segments}
	if err := w.begin(); err != nil {
		w.Close(time.Now())
		return nil, err
	}
	return w, nil
}

func (w *Writer) begin() (err error) {
	if w.lock, err = openAt(w.dir.f, lockName, unix.O_RDWR|unix.O_CREAT, regular); err != nil {
		return err
	}
	if err := unix.Flock(int(w.lock.Fd()), unix.LOCK_EX|unix.LOCK_NB); errors.Is(err, unix.EWOULDBLOCK) {
		return fmt.Errorf("%s is being written by another process", w.dir.Path())
	} else if err != nil {
		return fmt.Errorf("lock %s: %w", w.lock.Name(), err)
	}
	if w.starts, err = w.dir.starts(); err != nil {
		return err
	}
	if n := len(w.starts); n > 0 {
		// Its writer may have been killed in a line: what comes begins anew.
		last, err := w.dir.openSegment(w.starts[n-1], unix.O_RDONLY)
		if err != nil {
			return err
		}
		size, err := last.Seek(0, 2)
		last.Close()
		if err != nil {
			return err
		}
		w.end = w.starts[n-1] + size
		if size == 0 {
			w.starts = w.starts[:n-1]
		}
	}
	return w.rotate()
}

// Write appends what was read from a stream, all but the beginning of a line that
// has no end yet: [Writer.Break] writes that.
func (w *Writer) Write(s Stream, data []byte, now time.Time) {
	w.at(now)
	p := w.pending[s]
	for len(data) > 0 {
		text, rest, ended := bytes.Cut(data, []byte("\n"))
		for len(p)+len(text) > PartMax {
			n := PartMax - len(p)
			p, text = append(p, text[:n]...), text[n:]
			w.line(s, true, p)
			p = p[:0]
		}
		p = append(p, text...)
		if ended {
			w.line(s, false, p)
			p = p[:0]
		}
		data = rest
	}
	w.pending[s] = p
	w.flush()
}

// Pending says that a stream has the beginning of a line that is not written yet.
func (w *Writer) Pending() bool { return len(w.pending[Stdout])+len(w.pending[Stderr]) > 0 }

// Break writes the beginnings of lines.
func (w *Writer) Break(now time.Time) {
	w.at(now)
	for s, p := range w.pending {
		if len(p) > 0 {
			w.line(Stream(s), true, p)
			w.pending[s] = p[:0]
		}
	}
	w.flush()
}

// End is the place behind all that is written.
func (w *Writer) End() int64 { return w.end }

// Lost counts the bytes that neither are in the log nor are noted there, and says
// why.
func (w *Writer) Lost() (int64, error) { return w.lost[Stdout] + w.lost[Stderr], w.err }

// Close writes what is left and lets go of the log: first of the lock, so that who
// is woken by the end of a segment's writer finds it free.
func (w *Writer) Close(now time.Time) {
	if w.f != nil {
		w.Break(now)
	}
	for _, f := range []*os.File{w.lock, w.f, w.dir.f} {
		if f != nil {
			f.Close()
		}
	}
}

// at sets the time of what follows, and notes what was lost before it.
func (w *Writer) at(now time.Time) {
	w.stamp = appendStamp(w.stamp[:0], now)
	for s, n := range w.lost {
		if n > 0 {
			w.lost[s] = 0 // counted again if this is not written either
			w.append(appendLost(nil, w.stamp, Stream(s), n))
		}
	}
}

func (w *Writer) line(s Stream, partial bool, text []byte) {
	if w.room(int64(len(text) + headMax)) {
		w.buf = appendLine(w.buf, w.stamp, s, partial, text)
		return
	}
	w.drop(appendLine(nil, w.stamp, s, partial, text))
}

func (w *Writer) append(lines []byte) {
	if w.room(int64(len(lines))) {
		w.buf = append(w.buf, lines...)
		return
	}
	w.drop(lines)
}

// room makes room for n bytes in the segment, or in a new one. It is false if there
// can be no new one.
func (w *Writer) room(n int64) bool {
	if w.size()+int64(len(w.buf))+n <= w.segment {
		return true
	}
	w.flush()
	if w.size()+n <= w.segment { // the disk had no room for what is gone now
		return true
	}
	if err := w.rotate(); err != nil {
		w.err = err
		return false
	}
	return true
}

// size is that of the segment.
func (w *Writer) size() int64 { return w.end - w.starts[len(w.starts)-1] }

// rotate begins a new segment, after making room for it: a full disk may need that.
func (w *Writer) rotate() error {
	for len(w.starts) >= Segments {
		if err := w.dir.removeSegment(w.starts[0]); err != nil {
			return err
		}
		w.starts = w.starts[1:]
	}
	f, err := w.dir.openSegment(w.end, unix.O_WRONLY|unix.O_CREAT|unix.O_APPEND)
	if err != nil {
		return err
	}
	if w.f != nil {
		w.f.Close()
	}
	w.f, w.starts = f, append(w.starts, w.end)
	return nil
}

// flush writes the lines that are ready: of those that the disk has no room for,
// nothing is left, as a reader may have seen only whole ones.
func (w *Writer) flush() {
	if len(w.buf) == 0 {
		return
	}
	n, err := w.f.Write(w.buf)
	whole := bytes.LastIndexByte(w.buf[:n], '\n') + 1
	if whole < n {
		if w.f.Truncate(w.size()+int64(whole)) != nil {
			w.end += int64(n - whole) // a torn line, which readers pass over
		}
	}
	w.end += int64(whole)
	if err != nil {
		w.err = err
		w.drop(w.buf[whole:])
	}
	w.buf = w.buf[:0]
}

// drop counts what lines stand for.
func (w *Writer) drop(lines []byte) {
	for line := range bytes.Lines(lines) {
		if l, err := parseLine(bytes.TrimSuffix(line, []byte("\n"))); err == nil {
			w.lost[l.Stream] += l.size()
		}
	}
}
