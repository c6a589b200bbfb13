package keeper

import (
	"io"
	"os"
	"time"

	"github.com/creack/pty"
	"golang.org/x/sys/unix"
)

// relay passes on between the caller's terminal and one of the command's own.
type relay struct {
	master, slave *os.File
	first         int      // the lowest of the command's descriptors that are the terminal
	terminal      *os.File // the caller's
	before        *unix.Termios
	done          chan struct{} // closed when the command's terminal has nothing more to show
}

// newRelay puts a terminal of its own in place of the caller's in files, which are 0 to 2; nil if
// none of them is one, or if we are not in front of it: who is in the background reads nothing.
func newRelay(files []*os.File) (r *relay, err error) {
	ours := terminals(files)
	if len(ours) == 0 || !inFront() {
		return nil, nil
	}
	r = &relay{first: ours[0], done: make(chan struct{})}
	defer func() {
		if err != nil {
			closeAll([]*os.File{r.terminal, r.master, r.slave}) // nil closes as an error
		}
	}()
	if r.terminal, err = again(files[r.first]); err != nil {
		return nil, err
	}
	shows, err := again(files[ours[min(1, len(ours)-1)]])
	if err != nil {
		return nil, err
	}
	if r.master, r.slave, err = pty.Open(); err != nil {
		return nil, err
	}
	if r.before, err = unix.IoctlGetTermios(int(r.terminal.Fd()), getTermios); err != nil {
		return nil, err
	}
	if err := unix.IoctlSetTermios(int(r.slave.Fd()), setTermios, r.before); err != nil {
		return nil, err
	}
	if err := r.raw(); err != nil {
		return nil, err
	}
	r.resize()
	if r.first == 0 {
		go func() { _, _ = io.Copy(r.master, r.terminal) }() // ends with us
	}
	go func() {
		defer close(r.done)
		_, _ = io.Copy(shows, r.master) // ends when nobody has the other end any more
	}()
	for _, i := range ours {
		files[i] = r.slave
	}
	return r, nil
}

// terminals are the indices of files that are.
func terminals(files []*os.File) (is []int) {
	for i, f := range files {
		if _, err := unix.IoctlGetTermios(int(f.Fd()), getTermios); err == nil {
			is = append(is, i)
		}
	}
	return is
}

// again is another descriptor of a file, which stays when the first is let go of.
func again(f *os.File) (*os.File, error) {
	fd, err := unix.FcntlInt(f.Fd(), unix.F_DUPFD_CLOEXEC, 3)
	if err != nil {
		return nil, err
	}
	return os.NewFile(uintptr(fd), f.Name()), nil
}

// raw has the caller's terminal pass on every key, as those mean something to the other one.
func (r *relay) raw() error {
	t := *r.before
	t.Iflag &^= unix.IGNBRK | unix.BRKINT | unix.PARMRK | unix.ISTRIP | unix.INLCR | unix.IGNCR | unix.ICRNL | unix.IXON
	t.Oflag &^= unix.OPOST
	t.Lflag &^= unix.ECHO | unix.ECHONL | unix.ICANON | unix.ISIG | unix.IEXTEN
	t.Cflag = t.Cflag&^(unix.CSIZE|unix.PARENB) | unix.CS8
	t.Cc[unix.VMIN], t.Cc[unix.VTIME] = 1, 0
	return unix.IoctlSetTermios(int(r.terminal.Fd()), setTermios, &t)
}

// resize makes the command's terminal as big as the caller's; the kernel tells the command.
func (r *relay) resize() {
	if size, err := pty.GetsizeFull(r.terminal); err == nil {
		_ = pty.Setsize(r.master, size)
	}
}

// showTime is how long what the command has written last is waited for: something that it left
// behind may have the terminal open for ever.
const showTime = 250 * time.Millisecond

// end shows what is left to show, and gives the caller's terminal back as it was.
func (r *relay) end() {
	if r == nil {
		return
	}
	r.slave.Close()
	select {
	case <-r.done:
	case <-time.After(showTime):
	}
	_ = unix.IoctlSetTermios(int(r.terminal.Fd()), setTermios, r.before)
}

// inFront says whether our process group is the one in front of our terminal.
func inFront() bool {
	fd, err := unix.Open("/dev/tty", unix.O_RDONLY|unix.O_NOCTTY|unix.O_CLOEXEC|unix.O_NONBLOCK, 0)
	if err != nil {
		return false
	}
	defer unix.Close(fd)
	group, err := unix.IoctlGetInt(fd, unix.TIOCGPGRP)
	return err == nil && group == unix.Getpgrp()
}
