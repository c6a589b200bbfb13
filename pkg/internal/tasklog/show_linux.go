package tasklog

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"strconv"
	"strings"
	"sync"
	"time"

	"golang.org/x/sys/unix"
)

// answerTime bounds the silence of a pump that was asked how far the output of an
// ended command reaches; it may be frozen.
const answerTime = 2 * patience

// Show shows the output of a command that is being logged. It reads the log, so that
// neither its writers nor its end matter to the command.
type Show struct {
	conn  net.Conn
	dir   *Dir
	to    [2]*shown
	done  chan struct{}
	stop  chan struct{} // closed by Hide
	once  sync.Once
	news  chan struct{}
	acked int64

	mu      sync.Mutex
	asked   bool  // the pump, how far the output reaches
	end     int64 // of the command's output, -1 while that is not known
	gone    bool  // the pump says nothing more
	missing int64
	why     string // why output is missing
}

// Pair makes the two ends of the socket between a pump and who shows.
func Pair() (ours net.Conn, pumps *os.File, err error) {
	fds, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_SEQPACKET|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return nil, nil, os.NewSyscallError("socketpair", err)
	}
	f := os.NewFile(uintptr(fds[0]), "pump")
	pumps = os.NewFile(uintptr(fds[1]), "show")
	ours, err = net.FileConn(f)
	f.Close()
	if err != nil {
		pumps.Close()
		return nil, nil, err
	}
	return ours, pumps, nil
}

// Await waits until the pump can write its log, and says from which place on.
func Await(conn net.Conn, limit time.Duration) (from int64, err error) {
	var buf [1024]byte
	conn.SetReadDeadline(time.Now().Add(limit))
	defer conn.SetReadDeadline(time.Time{})
	n, err := conn.Read(buf[:])
	msg := string(buf[:n])
	if text, ok := strings.CutPrefix(msg, sayError); ok {
		return 0, errors.New(text)
	}
	if err == nil {
		from, err = strconv.ParseInt(strings.TrimPrefix(msg, sayOK), 10, 64)
	}
	if err != nil {
		return 0, fmt.Errorf("the process that keeps the log did not start: %w", err)
	}
	return from, nil
}

// NewShow shows on two writers, of which either may be nil, from a place in the log
// on. The connection and the directory are its own from here on.
func NewShow(conn net.Conn, dir *Dir, from int64, stdout, stderr io.Writer) *Show {
	s := &Show{conn: conn, dir: dir, end: -1, done: make(chan struct{}), stop: make(chan struct{}), news: make(chan struct{}, 1)}
	s.to[Stdout] = newShown(stdout)
	s.to[Stderr] = s.to[Stdout]
	if !same(stdout, stderr) {
		s.to[Stderr] = newShown(stderr)
	}
	go s.listen()
	go s.run(from)
	return s
}

// same says that two writers are one, as far as that can be compared.
func same(a, b io.Writer) (yes bool) {
	defer func() {
		if recover() != nil { // of types that cannot be compared
			yes = false
		}
	}()
	return a == b
}

// Ended says that the command has ended: what it wrote until now is shown, and no
// more.
func (s *Show) Ended() {
	s.mu.Lock()
	s.asked = true
	s.mu.Unlock()
	s.headway()
	s.send(sayEnd) // a pump that is gone is noticed by who listens
}

// headway gives a pump that was asked more time: it may be waiting for us.
func (s *Show) headway() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.asked {
		s.conn.SetReadDeadline(time.Now().Add(answerTime))
	}
}

// Wait waits until all is shown, or Hide, and says how many bytes were not, because
// they are not in the log, and why.
func (s *Show) Wait() (missing int64, why string) {
	select {
	case <-s.done:
	case <-s.stop:
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.missing, s.why
}

// Hide ends the showing. A write that is under way is left to itself.
func (s *Show) Hide() { s.once.Do(func() { close(s.stop) }) }

// listen hears what the pump says.
func (s *Show) listen() {
	var buf [1024]byte
	for {
		n, err := s.conn.Read(buf[:])
		s.mu.Lock()
		if err != nil || n == 0 {
			s.gone = true
		} else if text, ok := strings.CutPrefix(string(buf[:n]), sayEnd+" "); ok {
			place, text, _ := strings.Cut(text, " ")
			lost, why, _ := strings.Cut(text, " ")
			if at, err := strconv.ParseInt(place, 10, 64); err == nil {
				s.end = at
			}
			if n, err := strconv.ParseInt(lost, 10, 64); err == nil {
				s.missing += n
			}
			s.why = why
		}
		gone := s.gone
		s.mu.Unlock()
		select {
		case s.news <- struct{}{}:
		default: // it has not taken the last ones yet
		}
		if gone {
			return
		}
	}
}

func (s *Show) run(from int64) {
	defer close(s.done)
	defer s.dir.Close()
	defer s.conn.Close()
	r := s.dir.Read(from)
	defer r.Close()
	defer func() {
		for _, w := range s.to {
			w.Close()
		}
	}()
	for {
		// Looked at before reading: what comes after is not the command's.
		s.mu.Lock()
		end, gone := s.end, s.gone
		s.mu.Unlock()
		s.copy(r, end)
		if gone || end >= 0 && r.Pos() >= end {
			return
		}
		if s.to[Stdout].closed() && s.to[Stderr].closed() {
			s.conn.Close() // the pump need not wait for us
		}
		select {
		case <-s.news:
		case <-s.stop:
			return
		}
	}
}

// copy shows what there is up to end, -1 for all.
func (s *Show) copy(r *Reader, end int64) {
	last := s.to[Stdout]
	for end < 0 || r.Pos() < end {
		l, err := r.Next()
		if err != nil {
			break // no more for now, or it cannot be read: so no more for ever
		}
		if l.Missing > 0 {
			s.mu.Lock()
			s.missing += l.Missing
			s.mu.Unlock()
			continue
		}
		w := s.to[l.Stream]
		if w != last { // on a terminal the order shows
			last.flush()
			last = w
		}
		w.add(l)
		if w.full() {
			last.flush()
			s.ack(r.Pos())
		}
		select {
		case <-s.stop:
			return
		default:
		}
	}
	last.flush()
	s.ack(r.Pos())
}

// ackEvery is how far the pump's knowledge of what is shown may lag behind: less
// than the least log may be ahead.
const ackEvery = LeastMax / Segments

// ack tells the pump how far the output is shown.
func (s *Show) ack(at int64) {
	if at-s.acked >= ackEvery && s.send(sayAt+strconv.FormatInt(at, 10)) {
		s.acked = at
		s.headway()
	}
}

func (s *Show) send(msg string) bool {
	s.conn.SetWriteDeadline(time.Now().Add(time.Second))
	_, err := s.conn.Write([]byte(msg))
	return err == nil
}

// shown is a writer that is written to in large pieces, and never again once that
// failed.
type shown struct {
	w    io.Writer
	file *os.File // ours, if w was a file
	buf  bytes.Buffer
}

// newShown takes a descriptor of its own of a file: that of the program's own
// stdout would end the program by SIGPIPE when nobody reads it any more, says
// os/signal, any other one gives an error.
func newShown(w io.Writer) *shown {
	f, ok := w.(*os.File)
	if !ok || f == nil {
		return &shown{w: w}
	}
	fd, err := unix.FcntlInt(f.Fd(), unix.F_DUPFD_CLOEXEC, 3)
	if err != nil {
		return &shown{w: w}
	}
	own := os.NewFile(uintptr(fd), f.Name())
	return &shown{w: own, file: own}
}

func (o *shown) closed() bool { return o.w == nil }
func (o *shown) full() bool   { return o.buf.Len() >= 32<<10 }

func (o *shown) add(l Line) {
	o.buf.Write(l.Text)
	if !l.Partial {
		o.buf.WriteByte('\n')
	}
}

func (o *shown) flush() {
	if o.buf.Len() > 0 && o.w != nil {
		if _, err := o.w.Write(o.buf.Bytes()); err != nil {
			o.Close()
		}
	}
	o.buf.Reset()
}

// Close lets go of what is ours.
func (o *shown) Close() {
	if o.file != nil {
		o.file.Close()
	}
	o.w, o.file = nil, nil
}
