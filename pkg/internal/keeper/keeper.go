package keeper

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"os/signal"
	"slices"
	"sync"
	"syscall"
	"time"

	"github.com/sessionbox/sessionbox/pkg/darwinjob"
	"github.com/sessionbox/sessionbox/pkg/internal/park"
	"github.com/sessionbox/sessionbox/pkg/internal/proc"
	"github.com/sessionbox/sessionbox/pkg/store"
	"golang.org/x/sys/unix"
)

// Hooks are what a keeper tells of a task; they write it down.
type Hooks struct {
	// Abandoned is called before all of a task is ended whose caller died.
	Abandoned func(st *store.Store, o *Order)
	// End ends all of a task's leaf, as the session knows it; false: it cannot be asked.
	End func(ctx context.Context, st *store.Store, o *Order) bool
	// Ended is called when the command has ended and nobody else is left to record it.
	Ended func(st *store.Store, o *Order, ws syscall.WaitStatus)
}

// keeping is a keeper at work.
type keeping struct {
	mu          sync.Mutex // o.Sessions, o.Leaf, o.Task and kept
	o           Order
	kept        bool // it was given to another session, and is to last
	h           Hooks
	answer, tie *os.File
	front       io.Writer // nil for a front in the keeper's place
	hired       *os.File  // what front writes to, of a keeper in a job
	st          *store.Store
	job         *darwinjob.Lineage
	reaper      bool
	received    map[string]bool // parts that a watcher has taken up
	saving      sync.Mutex      // held while the leaf is written down, and taken off
	left        bool            // it was taken off, for good
	command     int             // its pid
	self        string          // see comm
	gone        bool
	stays       bool // the front was told that something is left
	ended       chan syscall.WaitStatus
	terminal    *int // the command's descriptor that is to be its controlling terminal, in a job
}

// keep is the keeper's main.
func keep(n int, h Hooks) int {
	ignoreSignals()
	var place *around
	last := n + fdFront
	if s := os.Getenv(envAround); s != "" {
		if err := json.Unmarshal([]byte(s), &place); err != nil {
			return 125
		}
		if place.HasDir {
			last++
		}
	}
	files := inherited(last)
	in, answer, tie, front := files[n+fdOrder-3], files[n+fdAnswer-3], files[n+fdTie-3], files[n+fdFront-3]
	k := &keeping{h: h, answer: answer, tie: tie, front: front, ended: make(chan syscall.WaitStatus, 1)}
	if err := json.NewDecoder(in).Decode(&k.o); err != nil {
		return k.refuse(fmt.Errorf("read what to start: %w", err))
	}
	if len(k.o.Sessions) == 0 {
		return k.refuse(errors.New("no session named"))
	}
	if place != nil {
		if err := k.settle(place, files); err != nil {
			return k.refuse(err)
		}
		k.hired = front
	}
	if err := k.begin(); err != nil {
		return k.refuse(err)
	}
	// Who looks at the session sees us from here on: a command whose caller has died before
	// is not started after it was called dead.
	if err := k.callerLives(); err != nil {
		_ = k.st.RemoveLineage(k.id(), k.leaf())
		return k.refuse(err)
	}
	if err := k.start(files[:n-3]); err != nil {
		_ = k.st.RemoveLineage(k.id(), k.leaf())
		return k.refuse(err)
	}
	release(files, answer, tie, front)
	_, _ = unix.Setsid() // fails for the leader of a group, which we are not
	k.run()
	return 0
}

// settle takes the place of a keeper in a job, whose command has a session of its own at any rate.
func (k *keeping) settle(place *around, files []*os.File) error {
	k.o.Setsid, k.terminal = true, place.Terminal
	if !place.HasDir {
		return place.settle(nil)
	}
	dir := files[len(files)-1]
	defer dir.Close()
	return place.settle(dir)
}

// ignoreSignals has us end with what we keep. They are caught and not ignored: what is ignored
// would be so in the command, too.
func ignoreSignals() {
	sigs := make(chan os.Signal, 64)
	signal.Notify(sigs, slices.DeleteFunc([]os.Signal{unix.SIGTERM, unix.SIGHUP, unix.SIGINT, unix.SIGQUIT, unix.SIGUSR1, unix.SIGUSR2, unix.SIGALRM,
		unix.SIGTSTP, unix.SIGTTIN, unix.SIGTTOU}, signal.Ignored)...)
	go func() {
		for range sigs {
		}
	}()
}

// callerLives also looks for the front of a keeper in a job, which may have given up waiting for
// the stub and said that nothing is started.
func (k *keeping) callerLives() error {
	if k.hired != nil {
		if raw, err := k.hired.SyscallConn(); err == nil && hungUp(raw, unix.POLLOUT) {
			return errors.New("the front has given up")
		}
	}
	if !k.o.Tied {
		return nil
	}
	fds := []unix.PollFd{{Fd: int32(k.tie.Fd()), Events: unix.POLLIN}}
	if n, err := unix.Poll(fds, 0); err == nil && n > 0 {
		return errors.New("the caller has died")
	}
	return nil
}

func (k *keeping) refuse(err error) int {
	w := word{Text: err.Error()}
	if errno, ok := errors.AsType[syscall.Errno](err); ok {
		if pe, ok := errors.AsType[*os.PathError](err); ok && pe.Op == "fork/exec" {
			w = word{Errno: errno}
		}
	}
	say(k.answer, w)
	say(k.front, w)
	return 125
}

// begin writes down who keeps the leaf, before there is anybody in it.
func (k *keeping) begin() error {
	table, err := darwinjob.System()
	if err != nil {
		return err
	}
	if k.st, err = store.Open(k.o.Dirs); err != nil {
		return err
	}
	here, err := darwinjob.Here(context.Background(), table)
	if err != nil {
		return err
	}
	l := darwinjob.NewLedger(k.o.ID(), here)
	l.Cookie, l.Within = k.o.Cookie, k.o.Sessions[:len(k.o.Sessions)-1]
	self, err := darwinjob.BecomeReaper()
	if k.reaper = err == nil; !k.reaper {
		// No orphans come to us, but whoever is our child is of the leaf, and who closes the
		// session waits for us.
		p, err := table.Lookup(os.Getpid())
		if err != nil {
			return err
		}
		self = p.ID
	}
	l.Reapers = []darwinjob.Reaper{{ID: self, Leaf: k.o.Leaf}}
	k.job = darwinjob.New(table, l, darwinjob.Options{Changed: k.save, Helper: k.others, Reaper: k.reaper})
	return k.save(l)
}

// resume goes on from what a keeper that was killed has written down.
func (k *keeping) resume() error {
	table, err := darwinjob.System()
	if err != nil {
		return err
	}
	if k.st, err = store.Open(k.o.Dirs); err != nil {
		return err
	}
	parts, err := k.st.Lineage(k.o.ID())
	if err != nil && parts[k.o.Leaf] == nil {
		return err
	}
	l, err := darwinjob.DecodeLedger(parts[k.o.Leaf])
	if err != nil {
		return err
	}
	if self, err := darwinjob.BecomeReaper(); err == nil {
		k.reaper = true
		l.Reapers = append(l.Reapers, darwinjob.Reaper{ID: self, Leaf: k.o.Leaf})
	}
	k.job = darwinjob.New(table, l, darwinjob.Options{Changed: k.save, Helper: k.others, Reaper: k.reaper})
	return k.save(l)
}

// start starts the command as our child. Where we are its reaper it need not wait until it is
// recorded: whatever it forks before that is our child or our child's. Elsewhere a stub waits,
// is recorded, and then becomes the command.
func (k *keeping) start(files []*os.File) error {
	cmd := &exec.Cmd{Path: k.o.Path, Args: k.o.Args, Env: k.o.Env, Stdin: os.Stdin, Stdout: os.Stdout, Stderr: os.Stderr,
		ExtraFiles: files, SysProcAttr: &syscall.SysProcAttr{Setsid: k.o.Setsid}}
	if k.terminal != nil {
		cmd.SysProcAttr.Setctty, cmd.SysProcAttr.Ctty = true, *k.terminal
	}
	var id darwinjob.ID
	if k.reaper {
		if err := cmd.Start(); err != nil {
			return err
		}
		// It may not be written down: a reaper's children are known without.
		id, _ = k.job.AddRoot(cmd.Process.Pid, k.o.Leaf)
	} else {
		self, err := os.Executable()
		if err != nil {
			return err
		}
		ctx, cancel := context.WithTimeout(context.Background(), startTime)
		defer cancel()
		place := func(pid int) (err error) {
			id, err = k.job.AddRoot(pid, k.o.Leaf)
			return err
		}
		if err := park.Start(ctx, cmd, self, place); err != nil {
			return err
		}
	}
	k.command = cmd.Process.Pid
	said := word{PID: k.command, Start: id.Start}
	say(k.answer, said)
	o := k.o
	o.Env, o.Args = nil, nil
	said.Order = &o
	say(k.front, said)
	return nil
}

// run watches until nobody is left.
func (k *keeping) run() {
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	chld := make(chan os.Signal, 1)
	signal.Notify(chld, unix.SIGCHLD)
	go func() { _ = k.job.Watch(ctx) }() // what it could not read or write it says again
	abandoned := make(chan struct{})
	if k.o.Tied {
		go k.watchTie(abandoned)
	}
	empty := make(chan struct{})
	var waiting bool
	for {
		left := k.collect()
		if k.gone && !left && k.reaper {
			break // the kernel says so: all that was forked below us was ours to collect
		}
		if k.gone && k.front != nil && !k.stays {
			k.stays = true
			say(k.front, word{Left: true})
		}
		if k.gone && !k.reaper && !waiting {
			waiting = true
			go func() {
				for ctx.Err() == nil {
					if k.empty(ctx) {
						close(empty)
						return
					}
				}
			}()
		}
		select {
		case <-chld:
		case <-abandoned:
			abandoned = nil
			k.abandon()
		case <-empty:
			k.leave()
			return
		case <-time.After(idleLook):
			k.follow()
		}
	}
	k.leave()
}

// idleLook is how often children are collected without having been told of.
const idleLook = 2 * time.Second

// collect reaps, and says whether children are left.
func (k *keeping) collect() (left bool) {
	for {
		var ws syscall.WaitStatus
		pid, err := syscall.Wait4(-1, &ws, syscall.WNOHANG, nil)
		switch {
		case errors.Is(err, syscall.EINTR):
			continue
		case err != nil:
			if !k.gone && k.command != 0 && errors.Is(err, syscall.ECHILD) {
				k.finished(0) // who took it from us has its status
			}
			return false
		case pid == 0:
			return true
		case pid == k.command && !k.gone:
			k.finished(ws)
		}
	}
}

// finished tells of the command's end.
func (k *keeping) finished(ws syscall.WaitStatus) {
	k.gone = true
	say(k.answer, word{Status: &ws})
	k.answer.Close()
	if k.front != nil {
		say(k.front, word{Status: &ws})
	}
	if k.h.Ended != nil && proc.FateOf(k.o.Supervisor) == proc.Gone {
		k.follow()
		o := k.order()
		k.h.Ended(k.st, &o, ws)
	}
	k.ended <- ws
}

// watchTie waits for the goodbye of the caller, or for its death.
func (k *keeping) watchTie(abandoned chan<- struct{}) {
	said, _ := io.ReadAll(k.tie) // an error is an end, too
	if string(said) == goodbye {
		if k.front != nil {
			say(k.front, word{Freed: true})
		}
		return
	}
	close(abandoned)
}

// abandon ends all of the leaf.
func (k *keeping) abandon() {
	if k.follow(); k.isKept() {
		return
	}
	if k.h.Abandoned != nil {
		o := k.order()
		k.h.Abandoned(k.st, &o)
	}
	go func() { // it is reaped meanwhile
		ctx, cancel := context.WithTimeout(context.Background(), killTime)
		defer cancel()
		o := k.order()
		if k.h.End != nil && k.h.End(ctx, k.st, &o) {
			return
		}
		_, _ = k.job.Kill(ctx, k.leaf()) // what survives shows up as a leftover of the task
	}()
}

func (k *keeping) isKept() bool {
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.kept
}

// killTime bounds the killing of one abandoned task.
const killTime = 30 * time.Second

// leave takes the leaf, which is empty, off the records.
func (k *keeping) leave() {
	if !k.gone {
		return
	}
	k.saving.Lock()
	defer k.saving.Unlock()
	k.left = true
	_ = k.st.RemoveLineage(k.id(), k.leaf()) // a closed session has none
}
