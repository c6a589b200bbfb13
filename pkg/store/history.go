package store

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

// Cursor is a place in the history: how far each file has been read. The zero
// Cursor is the end of the history at the time it is used.
type Cursor struct {
	offsets map[string]int64 // by file name
}

// Page is what ReadHistory has found.
type Page struct {
	Events []Event // newest last
	// Skipped counts the lines that are no events: torn, foreign, garbage.
	Skipped int
	// End is where reading ended; Follow from there misses and repeats nothing.
	End Cursor
}

// ReadHistory reads the events that the filter chooses, in the order that they
// were written, month after month. A history that does not exist is empty. What
// can be read is returned along with a *HistoryError (joined, one per file) for
// what cannot.
func (s *Store) ReadHistory(f Filter) (Page, error) {
	page := Page{End: Cursor{offsets: map[string]int64{}}}
	files, err := s.months()
	if err != nil {
		return page, &HistoryError{Path: s.dirs.History, Err: err}
	}
	var errs []error
	for _, name := range files {
		path := filepath.Join(s.dirs.History, name)
		if !f.mayBeIn(name) {
			if info, err := os.Lstat(path); err == nil {
				page.End.offsets[name] = info.Size()
			}
			continue
		}
		end, err := s.readMonth(path, 0, func(e Event, err error) bool {
			switch {
			case err != nil:
				page.Skipped++
			case f.fits(e):
				page.Events = append(page.Events, e)
				if f.Limit > 0 && len(page.Events) >= 2*f.Limit {
					page.Events = slices.Delete(page.Events, 0, len(page.Events)-f.Limit)
				}
			}
			return true
		})
		page.End.offsets[name] = end
		if err != nil {
			errs = append(errs, &HistoryError{Path: path, Err: err})
		}
	}
	if f.Limit > 0 && len(page.Events) > f.Limit {
		page.Events = slices.Clone(page.Events[len(page.Events)-f.Limit:])
	}
	return page, errors.Join(errs...)
}

// months lists the files of the history, oldest first.
func (s *Store) months() ([]string, error) {
	if err := checkDir(s.dirs.History, s.dirs.UID, true); err != nil {
		return nil, err
	}
	entries, err := os.ReadDir(s.dirs.History)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, err
	}
	var names []string
	for _, e := range entries {
		if _, err := monthOf(e.Name()); err == nil {
			names = append(names, e.Name())
		}
	}
	return names, nil // ReadDir sorts, and so do the names
}

func monthOf(name string) (time.Time, error) {
	name, ok1 := strings.CutPrefix(name, monthPrefix)
	name, ok2 := strings.CutSuffix(name, monthSuffix)
	if !ok1 || !ok2 {
		return time.Time{}, errors.New("not a month of history")
	}
	return time.Parse(monthLayout, name)
}

// mayBeIn tells whether a month's file can hold events that the filter wants. It
// allows for a day, since the file is chosen and the event is read by different
// code over the years.
func (f Filter) mayBeIn(name string) bool {
	month, err := monthOf(name)
	if err != nil {
		return false
	}
	const slack = 24 * time.Hour
	return (f.Until.IsZero() || month.Add(-slack).Before(f.Until)) &&
		(f.Since.IsZero() || month.AddDate(0, 1, 0).Add(slack).After(f.Since))
}

// BadLine is a line of history that is no event.
type BadLine struct {
	Path   string
	Offset int64 // of the line in the file, in bytes
	Err    error
}

func (e *BadLine) Error() string {
	return fmt.Sprintf("bad line at byte %d of %s: %v", e.Offset, e.Path, e.Err)
}

// Unwrap gives the cause.
func (e *BadLine) Unwrap() error { return e.Err }

// maxReadLine is how long a line is still looked at; longer ones are skipped
// without being held in memory. Newer versions may write longer lines than we.
const maxReadLine = 1 << 20

// readMonth calls yield with each whole line after offset: an event, or a
// *BadLine. It returns the offset after the last whole line (yielded or not): a
// line without an end may be one that is being written, and is left for later.
func (s *Store) readMonth(path string, offset int64, yield func(Event, error) bool) (int64, error) {
	fd, err := openFile(path, unix.O_RDONLY)
	if err != nil {
		return offset, err
	}
	defer unix.Close(fd)
	size, err := checkFile(path, fd, s.dirs.UID)
	if err != nil {
		return offset, err
	}
	// Lines end where they ended, unless the file was replaced or truncated:
	// then what is there is new.
	var last [1]byte
	if offset > 0 {
		if n, err := unix.Pread(fd, last[:], offset-1); size < offset || err != nil || n != 1 || last[0] != '\n' {
			offset = 0
		}
	}
	lines := lineReader{fd: fd, offset: offset}
	for {
		start := lines.offset
		line, err := lines.next()
		if errors.Is(err, io.EOF) {
			return start, nil
		}
		if err != nil && !errors.Is(err, ErrTooLarge) {
			return start, &fs.PathError{Op: "read", Path: path, Err: err}
		}
		if err == nil && len(line) == 0 {
			continue // the fence before it was not needed
		}
		var e Event
		if err == nil {
			e, err = parseEvent(line)
		}
		if err != nil {
			err = &BadLine{Path: path, Offset: start, Err: err}
		}
		if !yield(e, err) {
			return lines.offset, nil
		}
	}
}

// lineReader reads lines from a descriptor and counts bytes.
type lineReader struct {
	fd     int
	offset int64 // of the next line
	buf    []byte
	at     int64 // file offset of the end of buf
	primed bool
}

// next gives the next line without its newline, valid until the next call. io.EOF
// means that no whole line is left, ErrTooLarge that one was passed over.
func (r *lineReader) next() ([]byte, error) {
	if !r.primed {
		r.at, r.primed = r.offset, true
	}
	scanned, skipped := 0, false
	for {
		if i := bytes.IndexByte(r.buf[scanned:], '\n'); i >= 0 {
			line := r.buf[:scanned+i]
			r.buf = r.buf[scanned+i+1:]
			r.offset = r.at - int64(len(r.buf))
			if skipped {
				return nil, fmt.Errorf("%w: line of more than %d bytes", ErrTooLarge, maxReadLine)
			}
			return line, nil
		}
		scanned = len(r.buf)
		if scanned > maxReadLine {
			r.buf, scanned, skipped = r.buf[:0], 0, true
		}
		r.buf = slices.Grow(r.buf, 64<<10)
		n, err := noEINTR(func() (int, error) { return unix.Pread(r.fd, r.buf[len(r.buf):cap(r.buf)], r.at) })
		if err != nil {
			return nil, err
		}
		if n == 0 {
			return nil, io.EOF
		}
		r.buf = r.buf[:len(r.buf)+n]
		r.at += int64(n)
	}
}

// end is the Cursor behind all that is written now.
func (s *Store) end() (Cursor, error) {
	c := Cursor{offsets: map[string]int64{}}
	names, err := s.months()
	for _, name := range names {
		if info, err := os.Lstat(filepath.Join(s.dirs.History, name)); err == nil {
			c.offsets[name] = info.Size()
		}
	}
	return c, err
}

func (c Cursor) clone() Cursor { return Cursor{maps.Clone(c.offsets)} }
