package keeper

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/sessionbox/sessionbox/pkg/darwinjob"
	"golang.org/x/sys/unix"
)

// envAround tells a keeper in a job what a child of the front would have inherited.
const envAround = "SESSIONBOX_AROUND"

// around is what a command has from its caller beside files and environment.
type around struct {
	Dir    string  // the directory, if HasDir does not say that a descriptor of it is the last
	HasDir bool    `json:",omitempty"`
	Umask  int     // of the caller
	Limits []limit `json:",omitempty"`
	// Terminal is the descriptor that is to be the command's controlling terminal.
	Terminal *int `json:",omitempty"`
}

// limit is one of getrlimit(2).
type limit struct {
	What     int
	Cur, Max uint64
}

// Hello asks the stub of the session whose directory is dir who it is: one that answers is ready. It
// is asked until ctx is done.
func Hello(ctx context.Context, dir string) (darwinjob.Proc, error) {
	for wait := time.Millisecond; ; wait = min(2*wait, 100*time.Millisecond) {
		a, err := ask(dir, &request{}, nil)
		if err == nil {
			return a.Stub, nil
		}
		select {
		case <-ctx.Done():
			return darwinjob.Proc{}, err
		case <-time.After(wait):
		}
	}
}

// ask asks a stub once.
func ask(dir string, r *request, files []*os.File) (a reply, err error) {
	path, err := Socket(dir)
	if err != nil {
		return a, err
	}
	conn, err := net.DialTimeout("unix", path, askTime)
	if err != nil {
		return a, err
	}
	defer conn.Close()
	c := conn.(*net.UnixConn)
	c.SetDeadline(time.Now().Add(answerTime))
	if err := samePeer(c); err != nil {
		return a, err
	}
	if err := sendRequest(c, r, files); err != nil {
		return a, err
	}
	if err := json.NewDecoder(c).Decode(&a); err != nil {
		return a, err
	}
	if a.Text != "" {
		return a, errors.New(a.Text)
	}
	return a, nil
}

// hire has the stub start a keeper with our files, in our place. A terminal that we are in front
// of cannot be the command's in another session of processes: it gets one of its own, which
// the relay that is given passes on.
func hire(dir string, args []string, files []*os.File, toFront *os.File) (*relay, error) {
	where, here := surroundings()
	defer here.Close()
	all := append([]*os.File{os.Stdin, os.Stdout, os.Stderr}, files...)
	all = append(all, toFront)
	r, err := newRelay(all[:3])
	if err != nil {
		return nil, err
	}
	if r != nil {
		where.Terminal = &r.first
		defer r.slave.Close()
	}
	if here != nil {
		all = append(all, here)
	}
	if _, err := ask(dir, &request{Keeper: args, Env: os.Environ(), Around: where}, all); err != nil {
		r.end()
		return nil, fmt.Errorf("the job of the session does not start anything: %w; what runs in it goes on until the session is closed", err)
	}
	return r, nil
}

// surroundings are ours. The file is the directory that we are in, nil if it cannot be opened.
func surroundings() (*around, *os.File) {
	w := &around{Umask: syscall.Umask(0)}
	syscall.Umask(w.Umask)
	w.Dir, _ = os.Getwd()
	here, err := os.Open(".")
	w.HasDir = err == nil
	for _, what := range []int{unix.RLIMIT_AS, unix.RLIMIT_CORE, unix.RLIMIT_CPU, unix.RLIMIT_DATA, unix.RLIMIT_FSIZE, unix.RLIMIT_MEMLOCK, unix.RLIMIT_NOFILE, unix.RLIMIT_NPROC, unix.RLIMIT_STACK} {
		var l syscall.Rlimit
		if syscall.Getrlimit(what, &l) != nil {
			continue
		}
		if what == unix.RLIMIT_NOFILE {
			l.Cur = givenFiles(l.Cur)
		}
		w.Limits = append(w.Limits, limit{what, l.Cur, l.Max})
	}
	return w, here
}

// givenFiles is the limit of open files that we were given. Go raises it for itself and gives its
// children the former one, so that a child has to tell.
func givenFiles(raised uint64) uint64 {
	out, err := exec.Command("/bin/sh", "-c", "ulimit -Sn").Output()
	n, perr := strconv.ParseUint(strings.TrimSpace(string(out)), 10, 64)
	if err != nil || perr != nil { // or it is "unlimited"
		return raised
	}
	return n
}

// settle takes the place that a front has described; what cannot be had, as a limit above launchd's
// own, is as it is.
func (w *around) settle(dir *os.File) error {
	err := errors.New("no descriptor of it")
	if dir != nil {
		err = unix.Fchdir(int(dir.Fd()))
	}
	if err != nil && os.Chdir(w.Dir) != nil {
		return &os.PathError{Op: "fork/exec", Path: w.Dir, Err: syscall.ENOENT}
	}
	syscall.Umask(w.Umask)
	for _, l := range w.Limits {
		var now syscall.Rlimit
		if syscall.Getrlimit(l.What, &now) != nil {
			continue
		}
		most := min(l.Max, now.Max)
		_ = syscall.Setrlimit(l.What, &syscall.Rlimit{Cur: min(l.Cur, most), Max: most})
	}
	return nil
}
