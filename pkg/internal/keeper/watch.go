package keeper

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/sessionbox/sessionbox/pkg/darwinjob"
	"github.com/sessionbox/sessionbox/pkg/store"
)

// What was not started below a keeper (it ran already when it came into the session) has a
// watcher: it records who comes, as a keeper does, but collects nobody. It may be asked for
// by one of those that it watches, so it is started by way of a process that ends at once.
const (
	roleWatch   = "watch"
	roleWatcher = "watcher"
)

// Watch starts a watcher for a leaf whose ledger is written already.
func Watch(helper string, env []string, o Order) error {
	order, w, err := os.Pipe()
	if err != nil {
		return err
	}
	defer w.Close()
	readyR, readyW, err := os.Pipe()
	if err != nil {
		order.Close()
		return err
	}
	defer readyR.Close()
	cmd := &exec.Cmd{Path: helper, Args: []string{"sessionbox", Arg, roleWatch, strings.Join(o.Sessions, "-"), o.Leaf, "3"}, Env: env, Dir: "/",
		ExtraFiles: []*os.File{order, readyW}, SysProcAttr: &syscall.SysProcAttr{Setsid: true}}
	err = cmd.Start()
	order.Close()
	readyW.Close()
	if err != nil {
		return fmt.Errorf("start the watcher: %w", err)
	}
	w.SetWriteDeadline(time.Now().Add(startTime))
	err = json.NewEncoder(w).Encode(&o)
	w.Close()
	if werr := cmd.Wait(); err == nil {
		err = werr
	}
	if err == nil {
		readyR.SetReadDeadline(time.Now().Add(startTime))
		_, err = readyR.Read(make([]byte, 1)) // it has looked once; its end is an error
	}
	if err != nil {
		return fmt.Errorf("start the watcher: %w", err)
	}
	return nil
}

// detachWatcher is the process between.
func detachWatcher(args []string) int {
	self, err := os.Executable()
	if err != nil {
		return 1
	}
	cmd := &exec.Cmd{Path: self, Args: []string{"sessionbox", Arg, roleWatcher, args[1], args[2], args[3], strconv.Itoa(os.Getpid())}, Dir: "/",
		ExtraFiles: inherited(4), SysProcAttr: &syscall.SysProcAttr{Setsid: true}}
	if cmd.Start() != nil {
		return 1
	}
	return 0
}

// watcher is the watcher's main.
func watcher(args []string) int {
	ignoreSignals()
	between, err := strconv.Atoi(args[4]) // it may have ended by now, and we be another's child
	if err != nil {
		return 125
	}
	files := inherited(4)
	ready := files[1]
	k := &keeping{answer: files[0], ended: make(chan syscall.WaitStatus, 1), received: map[string]bool{}}
	if err := json.NewDecoder(files[0]).Decode(&k.o); err != nil || len(k.o.Sessions) == 0 {
		return 1
	}
	for end := time.Now().Add(time.Second); os.Getppid() == between && time.Now().Before(end); {
		time.Sleep(time.Millisecond)
	}
	release(files, ready)
	if k.st, err = store.Open(k.o.Dirs); err != nil {
		return 1
	}
	if err := k.load(); err != nil {
		return 1
	}
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	if _, err := k.job.Look(ctx, false); err != nil {
		return 1
	}
	_, _ = ready.Write([]byte{1})
	ready.Close()
	go func() { _ = k.job.Watch(ctx) }()
	for {
		empty := k.empty(ctx)
		// Who came meanwhile is in a part of its own.
		if came := k.receive(); empty && !came {
			_ = k.st.RemoveLineage(k.id(), k.leaf())
			for part := range k.received {
				_ = k.st.RemoveLineage(k.id(), part)
			}
			return 0
		}
		k.follow()
		if _, err := k.st.Get(k.id()); err != nil {
			return 0 // closed, or its records are lost: there is nothing to write to
		}
	}
}

// empty waits for a while until nobody is left in the leaf, and says whether that is so.
func (k *keeping) empty(ctx context.Context) bool {
	look, done := context.WithTimeout(ctx, idleLook)
	defer done()
	leaf := k.leaf()
	if k.job.WaitEmpty(look, leaf) != nil {
		<-look.Done() // who cannot read the table does not try again at once
		return false
	}
	return leaf == k.leaf() // else it got another name meanwhile, and nobody has this one
}

// load reads what is known of the leaf, and adds ourselves, so that who closes the session
// waits for us.
func (k *keeping) load() error {
	table, err := darwinjob.System()
	if err != nil {
		return err
	}
	here, err := darwinjob.Here(context.Background(), table)
	if err != nil {
		return err
	}
	l := darwinjob.NewLedger(k.id(), here)
	if own, err := k.st.LineagePart(k.id(), k.leaf()); err == nil && own != nil {
		if l, err = darwinjob.DecodeLedger(own); err != nil {
			return err
		}
	}
	self, err := table.Lookup(os.Getpid())
	if err != nil {
		return err
	}
	l.Reapers = append(l.Reapers, darwinjob.Reaper{ID: self.ID, Leaf: k.leaf()})
	k.job = darwinjob.New(table, l, darwinjob.Options{Changed: k.save, Helper: k.others})
	if !k.receive() && len(l.Nodes) == 0 {
		return errors.New("nobody is to be watched")
	}
	return k.save(k.job.Ledger())
}

// receive takes up who came into the leaf since it was asked last, and says whether somebody did.
func (k *keeping) receive() bool {
	parts, _ := k.st.Lineage(k.id()) // what cannot be read is read the next time
	came := false
	for part, data := range parts {
		if part == k.leaf() || LeafOf(part) != k.leaf() || k.received[part] {
			continue
		}
		l, err := darwinjob.DecodeLedger(data)
		if err == nil {
			err = k.job.Merge(l)
		}
		if err == nil {
			k.received[part], came = true, true
		}
	}
	return came
}
