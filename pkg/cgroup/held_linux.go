package cgroup

import (
	"errors"
	"fmt"
	"os"

	"golang.org/x/sys/unix"

	"github.com/sessionbox/sessionbox/pkg/memlimit"
)

// held is a file of the kernel's kept open, to be read again and again without
// opening it and without allocating. Not os.File: see package kfile.
type held struct {
	fd   int // -1: it is not here
	path string
}

// hold opens the file name below dir. One that does not exist is no error.
func hold(dir int, name string, flags int) (held, error) {
	fd, err := unix.Openat(dir, name, flags|unix.O_CLOEXEC, 0)
	switch {
	case errors.Is(err, unix.ENOENT):
		return held{-1, name}, nil
	case err != nil:
		return held{-1, name}, &os.PathError{Op: "open", Path: name, Err: err}
	}
	return held{fd, name}, nil
}

func (h held) here() bool { return h.fd >= 0 }

// read reads the file from its start into buf and gives what it holds. A file that is
// longer is cut at the end of a line. Errors are bare errnos.
func (h held) read(buf []byte) ([]byte, error) {
	n := 0
	for n < len(buf) {
		k, err := unix.Pread(h.fd, buf[n:], int64(n))
		if errors.Is(err, unix.EINTR) {
			continue
		}
		if err != nil {
			return nil, err
		}
		if k == 0 {
			return buf[:n], nil
		}
		n += k
	}
	for n > 0 && buf[n-1] != '\n' {
		n--
	}
	return buf[:n], nil
}

// line is read for a file of one line: when that is there, no more is asked for.
func (h held) line(buf []byte) ([]byte, error) {
	n, err := unix.Pread(h.fd, buf, 0)
	if err == nil && n > 0 && buf[n-1] == '\n' {
		return buf[:n], nil
	}
	return h.read(buf)
}

// amount reads a file of one number or "max"; Infinity where the file is not here.
func (h held) amount(buf []byte) (uint64, error) {
	if !h.here() {
		return memlimit.Infinity, nil
	}
	b, err := h.line(buf)
	if err != nil {
		return 0, err
	}
	n, ok := uint64(0), false
	for i, c := range b {
		switch {
		case c == '\n':
			continue
		case c >= '0' && c <= '9' && n <= memlimit.Infinity/10-1:
			n, ok = n*10+uint64(c-'0'), true
			continue
		case i == 0 && string(b) == "max\n":
			return memlimit.Infinity, nil
		}
		return 0, fmt.Errorf("%s: %q is no amount", h.path, b[:min(len(b), 40)])
	}
	if !ok {
		return 0, fmt.Errorf("%s is empty", h.path)
	}
	return n, nil
}

func (h *held) close() {
	if h.fd >= 0 {
		unix.Close(h.fd)
		h.fd = -1
	}
}
