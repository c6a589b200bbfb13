package main

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"
)

// page is what an actor tells the player, in a file that both have mapped: neither
// makes a system call for it, as under want of memory those wait.
type page struct {
	mem                     []byte
	pid, taken, beat, ready *atomic.Int64 // taken in bytes; beat by the clock; ready: it has what it wants before go
	done                    *atomic.Int64 // it has all it wants
}

const pageSize = 4096

func openPage(path string, flags int) (*page, error) {
	f, err := os.OpenFile(path, os.O_RDWR|flags, 0o666)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	if err := f.Truncate(pageSize); err != nil {
		return nil, err
	}
	mem, err := unix.Mmap(int(f.Fd()), 0, pageSize, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED)
	if err != nil {
		return nil, fmt.Errorf("map %s: %w", path, err)
	}
	at := func(i int) *atomic.Int64 { return (*atomic.Int64)(unsafe.Pointer(&mem[8*i])) }
	return &page{mem: mem, pid: at(0), taken: at(1), beat: at(2), ready: at(3), done: at(4)}, nil
}

func pagePath(dir, session, number string) string {
	return filepath.Join(dir, "page."+session+"."+number)
}

// sessionOf is the session of a page's file.
func sessionOf(path string) string {
	parts := strings.Split(filepath.Base(path), ".")
	if len(parts) != 4 {
		return ""
	}
	return parts[1]
}

// goPath is a file that is there from go on, with the time of it in it.
func goPath(dir string) string { return filepath.Join(dir, "go") }

// clock is CLOCK_MONOTONIC, which all processes share and nobody sets.
func clock() time.Duration {
	var ts unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_MONOTONIC, &ts); err != nil {
		panic(err) // there is no Linux without it
	}
	return time.Duration(ts.Nano())
}
