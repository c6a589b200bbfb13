package tasklog

import (
	"errors"
	"fmt"
	"os"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

// What the pump and who shows the output say to each other over a SOCK_SEQPACKET
// socket, one message each:
//
//	← ok PLACE, error TEXT  once: the log can be written, from here on, or cannot
//	← to PLACE              the log reaches up to here; may be left out when the next one follows
//	→ at PLACE              shown up to here
//	→ end                   the command has ended
//	← end PLACE LOST TEXT   its output reaches up to here; what could not be written, and why
//
// Either may close it, or die: the other goes on by itself.
const (
	sayOK    = "ok "
	sayError = "error "
	sayTo    = "to "
	sayAt    = "at "
	sayEnd   = "end"
)

const (
	// breakTime is how long the beginning of a line waits for its end.
	breakTime = 20 * time.Millisecond
	// patience is how long who shows the output may stand still before the pump goes
	// on without: the command must not hang on somebody who is stopped.
	patience = 5 * time.Second
	// stampMost is what one byte of output, a newline, can take in the log.
	stampMost = 48
)

// Pump writes what a command writes into a log, until nobody can write any more.
type Pump struct {
	Log *Writer
	Max int64 // of the log
	// In are the read ends of the command's stdout and stderr.
	In [2]int
	// Ctl is the socket of who shows the output.
	Ctl int

	patience time.Duration
	buf      []byte
	due      time.Time // when beginnings of lines are to be written; zero: there are none
	shown    int64
	moved    time.Time // when shown last was another
	told     int64     // the place that the other side knows of
	ending   bool      // the command has ended, and that was not answered yet
	waiting  [2]int64  // bytes that it wrote before that
}

// Run does it. It blocks on nothing but the three descriptors, which it closes.
func (p *Pump) Run() error {
	for _, fd := range []int{p.In[Stdout], p.In[Stderr], p.Ctl} {
		if err := unix.SetNonblock(fd, true); err != nil {
			return os.NewSyscallError("fcntl", err)
		}
	}
	// The two reads of a turn must not add more than a segment: being ahead by half of
	// the log and a segment leaves what is still to be shown in it.
	p.buf = make([]byte, min(64<<10, p.Max/Segments/stampMost/2))
	p.moved = time.Now()
	if p.patience == 0 {
		p.patience = patience
	}
	p.shown, p.told = p.Log.End(), p.Log.End()
	p.say(sayOK + strconv.FormatInt(p.told, 10))
	for p.In[Stdout] >= 0 || p.In[Stderr] >= 0 {
		if err := p.turn(); err != nil {
			return err
		}
	}
	p.Log.Break(time.Now())
	p.answer()
	p.hangUp()
	p.Log.Close(time.Now())
	return nil
}

// Refuse tells the other side that there can be no log.
func Refuse(ctl int, cause error) {
	unix.Sendto(ctl, []byte(sayError+cause.Error()), unix.MSG_NOSIGNAL|unix.MSG_DONTWAIT, nil)
}

// turn waits for something to do and does it.
func (p *Pump) turn() error {
	now := time.Now()
	hold := p.held(now)
	fds := []unix.PollFd{{Fd: int32(p.In[0]), Events: unix.POLLIN}, {Fd: int32(p.In[1]), Events: unix.POLLIN}, {Fd: int32(p.Ctl), Events: unix.POLLIN}}
	until := p.due
	if hold > 0 {
		fds[0].Fd, fds[1].Fd = -1, -1 // poll passes over them
		if resume := now.Add(hold); until.IsZero() || resume.Before(until) {
			until = resume
		}
	}
	if p.answerable() {
		fds[2].Events |= unix.POLLOUT
	}
	timeout := -1
	if !until.IsZero() {
		timeout = int(max(0, until.Sub(now)).Milliseconds()) + 1
	}
	if _, err := unix.Poll(fds, timeout); err != nil && !errors.Is(err, unix.EINTR) {
		return os.NewSyscallError("poll", err)
	}
	now = time.Now()
	for s := range p.In {
		if fds[s].Revents != 0 {
			p.read(Stream(s), now)
		}
	}
	switch {
	case !p.Log.Pending():
		p.due = time.Time{}
	case p.due.IsZero():
		p.due = now.Add(breakTime)
	case !now.Before(p.due):
		p.Log.Break(now)
		p.due = time.Time{}
	}
	if fds[2].Revents&(unix.POLLIN|unix.POLLHUP|unix.POLLERR) != 0 {
		p.hear(now)
	}
	if p.answerable() {
		p.Log.Break(now)
		p.due = time.Time{}
		p.answer()
	}
	if end := p.Log.End(); end != p.told && p.say(sayTo+strconv.FormatInt(end, 10)) {
		p.told = end
	}
	return nil
}

// held is how long the command has to wait because what it wrote would push out of
// the log what is still to be shown.
func (p *Pump) held(now time.Time) time.Duration {
	if p.Ctl < 0 || p.Log.End()-p.shown <= p.Max/2 {
		return 0
	}
	return max(0, p.patience-now.Sub(p.moved))
}

// read reads once from a stream, whatever poll said of it.
func (p *Pump) read(s Stream, now time.Time) {
	n, err := unix.Read(p.In[s], p.buf)
	switch {
	case n > 0:
		p.waiting[s] -= int64(n)
		p.Log.Write(s, p.buf[:n], now)
	case errors.Is(err, unix.EAGAIN), errors.Is(err, unix.EINTR):
	default: // nobody has the other end any more
		unix.Close(p.In[s])
		p.In[s] = -1
	}
}

// hear takes one message.
func (p *Pump) hear(now time.Time) {
	var buf [128]byte
	n, _, err := unix.Recvfrom(p.Ctl, buf[:], 0)
	if errors.Is(err, unix.EAGAIN) || errors.Is(err, unix.EINTR) {
		return
	}
	if n <= 0 {
		p.hangUp()
		return
	}
	msg := string(buf[:n])
	if msg == sayEnd {
		p.ending = true
		for s, fd := range p.In {
			p.waiting[s] = 0
			if fd >= 0 {
				// What is in the pipe now holds all that it wrote.
				if n, err := unix.IoctlGetInt(fd, unix.TIOCINQ); err == nil {
					p.waiting[s] = int64(n)
				}
			}
		}
		return
	}
	if text, ok := strings.CutPrefix(msg, sayAt); ok {
		if at, err := strconv.ParseInt(text, 10, 64); err == nil && at > p.shown {
			p.shown, p.moved = at, now
		}
	}
}

// answerable says that all the command wrote is in the log, and that somebody wants
// to know.
func (p *Pump) answerable() bool {
	for s, fd := range p.In {
		if fd >= 0 && p.waiting[s] > 0 {
			return false
		}
	}
	return p.ending && p.Ctl >= 0
}

func (p *Pump) answer() {
	if !p.ending {
		return
	}
	lost, why := p.Log.Lost()
	text := ""
	if why != nil {
		text = why.Error()
	}
	if p.say(fmt.Sprintf("%s %d %d %s", sayEnd, p.Log.End(), lost, text)) {
		p.ending = false
	}
}

// say sends a message, if there is room for it.
func (p *Pump) say(msg string) bool {
	if p.Ctl < 0 {
		return false
	}
	err := unix.Sendto(p.Ctl, []byte(msg), unix.MSG_NOSIGNAL|unix.MSG_DONTWAIT, nil)
	if err != nil && !errors.Is(err, unix.EAGAIN) && !errors.Is(err, unix.EINTR) {
		p.hangUp()
	}
	return err == nil
}

func (p *Pump) hangUp() {
	if p.Ctl >= 0 {
		unix.Close(p.Ctl)
		p.Ctl = -1
	}
}
