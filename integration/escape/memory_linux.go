package main

import (
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

// sharers is how many processes map the same memory.
const sharers = 4

// chunk is what is written and read at a time: little beside what is taken.
const chunk = 64 << 10

// runMemory takes a known amount of one kind of memory (--arg KIND:MIB), says with its
// pid that it has it, and keeps it.
func runMemory(p params) error {
	kind, text, _ := strings.Cut(p.arg, ":")
	mib, err := strconv.Atoi(text)
	if err != nil || mib < 0 {
		return fmt.Errorf("memory: %q is not KIND:MIB", p.arg)
	}
	take, ok := map[string]func(params, int) (release func(), err error){
		"anon": takeAnon, "locked": takeLocked, "huge": takeHuge, "shared": takeShared, "mapped": takeMapped,
		"tmpfs": takeTmpfs, "cache": takeCache, "tcp": takeTCP, "pipe": takePipes,
	}[kind]
	if !ok {
		return fmt.Errorf("memory: no kind %q", kind)
	}
	if kind != "huge" {
		if err := withoutHugePages(); err != nil {
			return err
		}
	}
	release, err := take(p, mib<<20)
	if err != nil {
		return fmt.Errorf("take %s: %w", p.arg, err)
	}
	defer release()
	if err := record(p); err != nil {
		return err
	}
	time.Sleep(time.Until(p.until))
	return nil
}

// withoutHugePages begins the program anew in small pages: else the heap of its runtime
// takes 2 MiB more now and then, for a page that is touched.
func withoutHugePages() error {
	off, err := unix.PrctlRetInt(unix.PR_GET_THP_DISABLE, 0, 0, 0, 0)
	if err != nil || off != 0 {
		return err
	}
	if err := unix.Prctl(unix.PR_SET_THP_DISABLE, 1, 0, 0, 0); err != nil {
		return fmt.Errorf("PR_SET_THP_DISABLE: %w", err)
	}
	return unix.Exec(self(), os.Args, os.Environ())
}

// mapAnon maps private memory. Nothing of it is there before it is touched.
func mapAnon(n int) ([]byte, error) {
	if n == 0 {
		return nil, nil
	}
	return unix.Mmap(-1, 0, n, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_PRIVATE|unix.MAP_ANONYMOUS)
}

// touch writes to each page, so that it is there and is not the page of zeros.
func touch(mem []byte) {
	for at := 0; at < len(mem); at += os.Getpagesize() {
		mem[at] = 1
	}
}

func unmap(mem []byte) func() {
	return func() {
		if mem != nil {
			_ = unix.Munmap(mem)
		}
	}
}

func takeAnon(_ params, n int) (func(), error) {
	mem, err := mapAnon(n)
	touch(mem)
	return unmap(mem), err
}

func takeLocked(_ params, n int) (func(), error) {
	mem, err := mapAnon(n)
	if err == nil && n > 0 {
		err = unix.Mlock(mem)
	}
	return unmap(mem), err
}

// takeHuge takes transparent huge pages, as many as the kernel gives: the rest is
// small ones, which count the same.
func takeHuge(_ params, n int) (func(), error) {
	mem, err := mapAnon(n)
	if err == nil && n > 0 {
		err = unix.Madvise(mem, unix.MADV_HUGEPAGE)
	}
	touch(mem)
	return unmap(mem), err
}

// memoryFile is a file on no file system that anybody sees: it is of tmpfs.
func memoryFile(n int) (*os.File, error) {
	fd, err := unix.MemfdCreate("escape", unix.MFD_CLOEXEC)
	if err != nil {
		return nil, err
	}
	f := os.NewFile(uintptr(fd), "escape")
	return f, fill(f, n)
}

// fill writes n bytes.
func fill(f *os.File, n int) error {
	b := make([]byte, chunk)
	for n > 0 {
		w, err := f.Write(b[:min(n, len(b))])
		if err != nil {
			return err
		}
		n -= w
	}
	return nil
}

// takeTmpfs writes a file of tmpfs that nobody maps.
func takeTmpfs(_ params, n int) (func(), error) {
	f, err := memoryFile(n)
	if err != nil {
		return nil, err
	}
	return func() { f.Close() }, nil
}

// takeShared has several processes map the same memory.
func takeShared(p params, n int) (func(), error) {
	f, err := memoryFile(n)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	for range sharers - 1 {
		child := exec.Command(self(), append([]string{"memory"}, p.with("mapped:"+strconv.Itoa(n>>20)).args()...)...)
		child.ExtraFiles = []*os.File{f}
		if err := child.Start(); err != nil {
			return nil, err
		}
	}
	return mapFile(int(f.Fd()), n)
}

// takeMapped maps the memory that was handed on as descriptor 3.
func takeMapped(_ params, n int) (func(), error) { return mapFile(3, n) }

func mapFile(fd, n int) (func(), error) {
	if n == 0 {
		return func() {}, nil
	}
	mem, err := unix.Mmap(fd, 0, n, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED)
	touch(mem)
	return unmap(mem), err
}

// takeCache writes a file on a disk and reads it: page cache, clean. Its name goes at
// once.
func takeCache(p params, n int) (func(), error) {
	dir := p.dir
	var st unix.Statfs_t
	if err := unix.Statfs(dir, &st); err == nil && st.Type == unix.TMPFS_MAGIC {
		dir = "/var/tmp"
	}
	f, err := os.CreateTemp(dir, "escape-cache-")
	if err != nil {
		return nil, err
	}
	if err := errors.Join(os.Remove(f.Name()), fill(f, n), f.Sync()); err != nil {
		return nil, err
	}
	b := make([]byte, chunk)
	for at := 0; at < n; at += len(b) {
		if _, err := f.ReadAt(b[:min(len(b), n-at)], int64(at)); err != nil {
			return nil, err
		}
	}
	return func() { f.Close() }, nil
}

// takeTCP leaves bytes unread in connections of this machine to itself, each filled
// until it takes no more.
func takeTCP(_ params, n int) (func(), error) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, err
	}
	defer l.Close()
	var open []net.Conn
	b := make([]byte, chunk)
	for n > 0 {
		out, err := net.Dial("tcp", l.Addr().String())
		if err != nil {
			return nil, err
		}
		in, err := l.Accept()
		if err != nil {
			return nil, err
		}
		open = append(open, out, in)
		for full := false; n > 0 && !full; {
			if err := out.SetWriteDeadline(time.Now().Add(10 * time.Millisecond)); err != nil {
				return nil, err
			}
			w, err := out.Write(b[:min(n, len(b))])
			n -= w
			if full = errors.Is(err, os.ErrDeadlineExceeded); err != nil && !full {
				return nil, err
			}
		}
	}
	return func() {
		for _, c := range open {
			c.Close()
		}
	}, nil
}

// takePipes leaves bytes unread in pipes.
func takePipes(_ params, n int) (func(), error) {
	var open []*os.File
	b := make([]byte, chunk)
	for n > 0 {
		r, w, err := os.Pipe()
		if err != nil {
			return nil, err
		}
		open = append(open, r, w)
		size, err := unix.FcntlInt(w.Fd(), unix.F_SETPIPE_SZ, 1<<20)
		if err != nil {
			return nil, err
		}
		for size = min(size, n); size > 0; size -= chunk {
			took, err := w.Write(b[:min(size, chunk)])
			if err != nil {
				return nil, err
			}
			n -= took
		}
	}
	return func() {
		for _, f := range open {
			f.Close()
		}
	}, nil
}
