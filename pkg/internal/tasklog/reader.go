package tasklog

import (
	"bytes"
	"errors"
	"io"
	"io/fs"
	"os"
	"slices"

	"golang.org/x/sys/unix"
)

// Reader reads a log from a place on, while it grows and is rotated.
type Reader struct {
	dir   *Dir
	f     *os.File // the segment that pos is in; nil before the first one
	start int64    // where it begins
	pos   int64    // of the next line
	buf   []byte   // what was read from pos on
	read  int      // how much of buf Next has given away
}

// Read reads from a place on; 0 is the beginning.
func (d *Dir) Read(from int64) *Reader { return &Reader{dir: d, pos: from} }

// Pos is the place behind the last line.
func (r *Reader) Pos() int64 { return r.pos }

// Close lets go of the segment. The directory is the caller's.
func (r *Reader) Close() {
	if r.f != nil {
		r.f.Close()
		r.f = nil
	}
}

// Next gives the next line. io.EOF means that there is none now; more may come
// while the log is [Dir.Live].
func (r *Reader) Next() (Line, error) {
	for {
		if text, ok := r.whole(); ok {
			n := int64(len(text) + 1)
			r.pos += n
			l, err := parseLine(text)
			if err != nil {
				l = Line{Missing: n} // somebody else wrote here
			}
			return l, nil
		}
		n, err := r.fill()
		if err != nil {
			return Line{}, err
		}
		if n > 0 {
			continue
		}
		missed, err := r.advance()
		if err != nil {
			return Line{}, err
		}
		if missed > 0 {
			return Line{Missing: missed}, nil
		}
	}
}

// whole takes a whole line from what was read.
func (r *Reader) whole() ([]byte, bool) {
	b := r.buf[r.read:]
	i := bytes.IndexByte(b, '\n')
	if i < 0 {
		return nil, false
	}
	r.read += i + 1
	return b[:i], true
}

// fill reads more of the segment.
func (r *Reader) fill() (int, error) {
	if r.f == nil {
		return 0, nil
	}
	r.buf = append(r.buf[:0], r.buf[r.read:]...)
	r.read = 0
	if len(r.buf) > PartMax+headMax { // no line of ours: given as missing in pieces
		r.buf = append(r.buf, '\n')
		r.pos-- // which is not in the file
		return 1, nil
	}
	r.buf = slices.Grow(r.buf, 64<<10)
	n, err := r.f.ReadAt(r.buf[len(r.buf):cap(r.buf)], r.pos-r.start+int64(len(r.buf)))
	r.buf = r.buf[:len(r.buf)+n]
	if errors.Is(err, io.EOF) {
		err = nil
	}
	return n, err
}

// advance goes from the end of a segment to the next one and says how many bytes
// are missing between them; io.EOF when there is none. The next one is there only
// after this one was written to its end, and its name is the place where we are: if
// it can be opened, nothing more comes here.
func (r *Reader) advance() (missed int64, err error) {
	torn := int64(len(r.buf) - r.read)
	r.buf, r.read = r.buf[:0], 0 // read again: a line without an end may change
	if r.f != nil {
		if r.pos+torn > r.start {
			next, err := r.dir.openSegment(r.pos+torn, unix.O_RDONLY)
			if err == nil {
				r.to(next, r.pos+torn)
				return torn, nil
			}
			if !errors.Is(err, fs.ErrNotExist) {
				return 0, err
			}
		}
		var st unix.Stat_t
		if err := unix.Fstat(int(r.f.Fd()), &st); err != nil || st.Nlink > 0 {
			return 0, eof(err)
		}
		// It was rotated away, and so may be those that came next.
	}
	return r.jump()
}

// jump looks for the segment that has the place where we are, or the first one
// behind it.
func (r *Reader) jump() (missed int64, err error) {
	starts, err := r.dir.starts()
	if err != nil {
		return 0, err
	}
	if r.f != nil {
		starts = slices.DeleteFunc(starts, func(at int64) bool { return at <= r.start })
	}
	i, found := slices.BinarySearch(starts, r.pos)
	if !found && i > 0 {
		i-- // it begins before
	}
	for ; i < len(starts); i++ {
		f, err := r.dir.openSegment(starts[i], unix.O_RDONLY)
		if errors.Is(err, fs.ErrNotExist) {
			continue // rotated away just now
		}
		if err != nil {
			return 0, err
		}
		missed = max(0, starts[i]-r.pos)
		r.to(f, starts[i])
		return missed, nil
	}
	return 0, io.EOF
}

// to makes another segment the one that is read.
func (r *Reader) to(f *os.File, start int64) {
	r.Close()
	r.f, r.start, r.pos = f, start, max(r.pos, start)
}

// eof is err, or that there is no more.
func eof(err error) error {
	if err == nil {
		err = io.EOF
	}
	return err
}

// Tail is the place where the newest n lines of a log begin. What is without an end
// counts as a line.
func (d *Dir) Tail(n int) (int64, error) {
	r := d.Read(0)
	defer r.Close()
	var ring []int64 // places of the newest lines, the next to go at i
	i := 0
	var within [2]bool
	for at := int64(0); ; at = r.Pos() {
		l, err := r.Next()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			return 0, err
		}
		if l.Missing > 0 {
			continue // no line: what is missing before the first one least of all
		}
		begins := !within[l.Stream]
		within[l.Stream] = l.Partial
		switch {
		case n < 1 || !begins:
		case len(ring) < n:
			ring = append(ring, at)
		default:
			ring[i] = at
			i = (i + 1) % n
		}
	}
	switch {
	case n < 1 || len(ring) == 0:
		return r.Pos(), nil
	case len(ring) < n:
		return ring[0], nil
	}
	return ring[i], nil
}
