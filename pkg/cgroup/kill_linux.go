package cgroup

import (
	"context"
	"errors"
	"time"

	"github.com/sessionbox/sessionbox/pkg/internal/proc"
	"golang.org/x/sys/unix"
)

// settle is how long a killed process may take to end before it is looked at
// again. Measured on 6.18: 400 processes are gone after 17 ms.
const settle = 50 * time.Millisecond

// fewLeft is how many are signalled at the first look after a kill: a thousand are
// still on their way out then, and only get in each other's way.
const fewLeft = 32

// Kill ends every process of g and below and returns nil when the kernel says
// that none is left. At the end of ctx: a [*proc.SurvivorsError].
//
// cgroup.kill (Linux 5.14) also gets those that are forking; it misses a
// process whose leading thread has ended while others run (measured on 6.18),
// so what is still there after a while is signalled one by one.
func (g *Group) Kill(ctx context.Context) error {
	err := g.write("cgroup.kill", "1")
	switch {
	case err == nil:
		err = g.killRest(ctx, false)
	case isGone(err) && g.Gone():
		return nil
	default: // ENOENT before 5.14; EACCES: not ours to write, but perhaps to signal
		err = errors.Join(g.killRest(ctx, true), onlyDenied(err))
		if p, perr := g.Populated(); perr == nil && !p {
			err = nil
		}
	}
	if err == nil {
		// A killed group stays frozen if it was; nobody would start in it.
		if terr := g.Thaw(); terr != nil && !isGone(terr) {
			return terr
		}
	}
	return err
}

// onlyDenied keeps the reason why cgroup.kill could not be used, unless it is
// just that this kernel has none.
func onlyDenied(err error) error {
	if errors.Is(err, unix.ENOENT) {
		return nil
	}
	return err
}

// killRest waits for the group to empty and signals what does not go. With
// byHand nobody was killed yet and newcomers must be kept from slipping through
// between two lists: the group is frozen for the pass (SIGKILL ends a frozen
// process of a v2 group; the freezer itself is 5.2).
func (g *Group) killRest(ctx context.Context, byHand bool) error {
	last := -1
	for pass := 0; ; pass++ {
		if byHand {
			g.killFrozen(ctx)
		} else if pass > 0 {
			now, err := g.Members()
			if err != nil {
				return err
			}
			if len(now) <= fewLeft || last >= 0 && len(now) >= last { // not just slow to go
				g.write("cgroup.kill", "1") // somebody may have moved in since
				g.Signal(unix.SIGKILL)      // what cannot be signalled is reported as survivor
			}
			last = len(now)
		}
		err := g.waitSettled(ctx)
		if err == nil {
			return nil
		}
		if ctx.Err() != nil {
			return g.survivors()
		}
		if !errors.Is(err, context.DeadlineExceeded) {
			return err
		}
	}
}

func (g *Group) killFrozen(ctx context.Context) {
	// A process in a vfork or in D state never counts as frozen: go on anyhow.
	short, cancel := context.WithTimeout(ctx, settle)
	defer cancel()
	g.Freeze(short)
	g.Signal(unix.SIGKILL)
	g.Thaw()
}

func (g *Group) waitSettled(ctx context.Context) error {
	short, cancel := context.WithTimeout(ctx, settle)
	defer cancel()
	return g.WaitEmpty(short)
}

// survivors names who is left at the end of the time, nil if the kernel says that
// nobody is. What it says after the list was made counts: the last may have gone
// meanwhile.
func (g *Group) survivors() error {
	for again := false; ; again = true {
		members, err := g.Members()
		if err != nil {
			return err
		}
		p, err := g.Populated()
		if err != nil {
			return err
		}
		if !p {
			return nil
		}
		if len(members) == 0 && !again {
			continue // they went, and others came
		}
		if len(members) == 0 {
			members = []proc.Member{{}}
		}
		e := &proc.SurvivorsError{Path: g.path}
		for _, m := range members {
			e.Survivors = append(e.Survivors, survivor(m.PID))
		}
		return e
	}
}

// unseen stands in for the name of a process without a pid here: the group is
// populated, and nobody in it is listed.
const unseen = "(in a pid namespace we cannot see into)"

func survivor(pid int) proc.Survivor {
	s := proc.Survivor{PID: pid, State: "?", UID: -1}
	if pid == 0 {
		s.Comm = unseen
		return s
	}
	if proc.OwnNamespace() != nil {
		return s // what /proc says is about another one
	}
	if st, err := proc.ReadStat(pid); err == nil {
		s.Start, s.Comm, s.State = st.Start, st.Comm, string(st.State)
		s.Wchan = proc.Wchan(pid)
		s.UID, _ = proc.UID(pid)
	}
	return s
}
