package main

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"syscall"
	"time"

	"github.com/sessionbox/sessionbox/integration/membench/plan"
	"golang.org/x/sys/unix"
)

const mib = 1 << 20

// lead starts the actors of a session and waits for them, as an agent does for its
// tools: that one of them is killed is not its end. Those that are to stay without it
// it leaves behind.
func lead(dir, scenario, name string, actors []plan.Actor) error {
	self, err := os.Executable()
	if err != nil {
		return err
	}
	var wait []*exec.Cmd
	for i := range actors {
		a := &actors[i]
		for n := range max(1, a.Count) {
			cmd := exec.Command(self, "act", dir, scenario, name, strconv.Itoa(i), strconv.Itoa(n))
			if a.Do == plan.Leave {
				cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
			} else {
				cmd.Stderr = os.Stderr
				wait = append(wait, cmd)
			}
			if err := cmd.Start(); err != nil {
				return err
			}
		}
	}
	var errs []error
	for _, cmd := range wait {
		errs = append(errs, cmd.Wait())
	}
	return errors.Join(errs...)
}

// act is one actor. It stays when it has what it wants, until it is ended.
func act(dir, session string, a *plan.Actor, number string) error {
	p, err := openPage(pagePath(dir, session, number), os.O_CREATE)
	if err != nil {
		return err
	}
	w := &worker{page: p, a: a}
	p.pid.Store(int64(os.Getpid()))
	if err := w.reserve(); err != nil {
		return err
	}
	w.take(a.First)
	if a.Do == plan.SwapOut {
		if err := w.swapOut(); err != nil {
			return err
		}
	}
	p.ready.Store(1)
	if err := w.waitGo(dir); err != nil {
		return err
	}
	w.rest(a.After)
	switch a.Do {
	case plan.Read:
		err = w.read()
	case plan.Tmpfs:
		err = w.tmpfs(filepath.Join("/dev/shm", "membench."+session))
	case plan.Cycle:
		w.grow()
		w.cycle()
	default:
		w.grow()
	}
	if err != nil {
		return err
	}
	p.done.Store(1)
	for {
		w.rest(time.Second)
	}
}

// worker is an actor at work.
type worker struct {
	page *page
	a    *plan.Actor
	room []byte // reserved
	got  int    // bytes of it
	file *os.File
}

// tick is between two steps; longest is what a step takes account of: who stood still
// goes on where it was, and does not catch up.
const (
	tick    = 100 * time.Millisecond
	longest = 400 * time.Millisecond
)

func (w *worker) beat() { w.page.beat.Store(int64(clock())) }

// rest waits, and says that it lives.
func (w *worker) rest(d time.Duration) {
	for end := clock() + d; ; {
		w.beat()
		left := end - clock()
		if left <= 0 {
			return
		}
		time.Sleep(min(left, tick))
	}
}

func (w *worker) waitGo(dir string) error {
	for {
		w.beat()
		if _, err := os.Stat(goPath(dir)); err == nil {
			return nil
		} else if !errors.Is(err, fs.ErrNotExist) {
			return err
		}
		time.Sleep(tick)
	}
}

// reserve maps room for all that it will ever take, in huge pages where there are some:
// an emulated machine takes long for each page that is touched for the first time.
func (w *worker) reserve() error {
	n := w.a.UpTo * mib
	if n == 0 || w.a.Do == plan.Tmpfs {
		return nil
	}
	mem, err := unix.Mmap(-1, 0, n, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_PRIVATE|unix.MAP_ANONYMOUS|unix.MAP_NORESERVE)
	if err != nil {
		return fmt.Errorf("map %d bytes: %w", n, err)
	}
	if err := unix.Madvise(mem, unix.MADV_HUGEPAGE); err != nil && !errors.Is(err, unix.EINVAL) {
		return fmt.Errorf("ask for huge pages: %w", err)
	}
	w.room = mem
	return nil
}

// add takes that much more. What is in it cannot be compressed well, should somebody
// try.
func (w *worker) add(n int) {
	scribble(w.room[w.got:w.got+n], w.got)
	w.got += n
	w.page.taken.Store(int64(w.got))
}

// scribble writes to each page.
func scribble(mem []byte, seed int) {
	x := uint32(seed) | 1
	for at := 0; at < len(mem); at += pageSize {
		for i := at; i < at+64; i += 4 {
			x ^= x << 13
			x ^= x >> 17
			x ^= x << 5
			mem[i], mem[i+1], mem[i+2], mem[i+3] = byte(x), byte(x>>8), byte(x>>16), byte(x>>24)
		}
	}
}

// take has that many MiB, as fast as it can.
func (w *worker) take(want int) {
	for w.got < want*mib {
		w.add(min(mib, want*mib-w.got))
		w.beat()
	}
}

// grow takes memory at the actor's rate.
func (w *worker) grow() {
	if w.a.Rate == 0 {
		w.take(w.a.UpTo)
		return
	}
	due, last := float64(w.got), clock()
	for w.got < w.a.UpTo*mib {
		time.Sleep(tick)
		now := clock()
		due += min(now-last, longest).Seconds() * w.a.Rate * mib
		last = now
		w.beat()
		if n := min(int(due)-w.got, w.a.UpTo*mib-w.got) / pageSize * pageSize; n > 0 {
			w.add(n)
		}
	}
}

// cycle writes to all that it has, over and over, for ever.
func (w *worker) cycle() {
	for round := 1; ; round++ {
		for at := 0; at < w.got; at += mib {
			scribble(w.room[at:min(at+mib, w.got)], round)
			w.beat()
		}
	}
}

// swapOut has the kernel write what it holds to swap, as far as that has room.
func (w *worker) swapOut() error {
	if err := unix.Madvise(w.room, unix.MADV_PAGEOUT); err != nil {
		return fmt.Errorf("page out: %w", err)
	}
	w.beat()
	return nil
}

// read reads the data file.
func (w *worker) read() error {
	buf := make([]byte, 256<<10)
	for range max(1, w.a.Times) {
		f, err := os.Open(plan.DataFile)
		if err != nil {
			return err
		}
		for err == nil {
			_, err = f.Read(buf)
			w.beat()
		}
		f.Close()
		if !errors.Is(err, io.EOF) {
			return err
		}
	}
	return nil
}

// tmpfs writes a file into memory. It is gone as soon as nobody has it open.
func (w *worker) tmpfs(path string) error {
	f, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return err
	}
	w.file = f // open for as long as the process lives
	if err := os.Remove(path); err != nil {
		return err
	}
	buf := make([]byte, mib)
	for w.got < w.a.UpTo*mib {
		n, err := f.Write(buf)
		if err != nil {
			return err
		}
		w.got += n
		w.page.taken.Store(int64(w.got))
		w.beat()
	}
	return nil
}
