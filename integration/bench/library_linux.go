package main

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"time"

	"github.com/sessionbox/sessionbox/pkg/cgroup"
	"github.com/sessionbox/sessionbox/pkg/session"
	"github.com/sessionbox/sessionbox/pkg/store"
)

// ownRoot makes a cgroup for the boxes of this run and points to it.
func ownRoot() (remove func(), err error) {
	m, err := cgroup.FindMount()
	if err != nil {
		return nil, err
	}
	dir, err := cgroup.DefaultRoot(m)
	if err != nil {
		return nil, err
	}
	top, err := cgroup.Open(dir)
	if err != nil {
		return nil, err
	}
	defer top.Close()
	g, err := top.Make(fmt.Sprintf("sbxtest-bench-%d", os.Getpid()))
	if err != nil {
		return nil, err
	}
	os.Setenv("SESSIONBOX_CGROUP_ROOT", g.Path())
	return func() {
		ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
		defer cancel()
		if err := g.Kill(ctx); err == nil {
			g.Remove(ctx)
		}
		g.Close()
	}, nil
}

// startRows compare the library with plain os/exec, alone and with a leaf made,
// used and removed by hand, which is the least a contained start can do.
func (b *bench) startRows(ctx context.Context, s *session.Session) []row {
	mine := func() (time.Duration, error) {
		began := time.Now()
		t, err := s.Start(ctx, exec.Command("true"), session.StartOptions{})
		if err != nil {
			return 0, err
		}
		_, err = t.Wait()
		return time.Since(began), err
	}
	info, err := b.m.Inspect(ctx, s.ID(), session.InspectOptions{})
	if err != nil {
		return nil
	}
	top, err := cgroup.Open(info.Box.Path)
	if err != nil {
		return nil
	}
	n := 0
	byHand := func() (time.Duration, error) {
		began := time.Now()
		n++
		leaf, err := top.Make(fmt.Sprintf("by-hand-%d", n))
		if err != nil {
			return 0, err
		}
		defer leaf.Close()
		cmd := exec.Command("true")
		if err := leaf.Start(cmd); err != nil {
			return 0, err
		}
		if err := cmd.Wait(); err != nil {
			return 0, err
		}
		err = leaf.Remove(ctx)
		return time.Since(began), err
	}
	rows := []row{{"library Session.Start and Wait", "os/exec", 0, 3 * b.n, mine, command("true")}}
	if b.kind == store.KindCgroup { // under systemd the slice is not ours to make leaves in
		rows = append(rows, row{"library Session.Start and Wait", "os/exec in a leaf from mkdir", 1.5, 3 * b.n, mine, byHand})
	}
	return rows
}

// spawner is a shell that starts n sleeping processes and waits for them.
func spawner(n int) *exec.Cmd {
	return exec.Command("sh", "-c", fmt.Sprintf("i=0; while [ $i -lt %d ]; do sleep 600 & i=$((i+1)); done; echo ready; wait", n-1))
}

// closing times the close of a session of so many processes.
func (b *bench) closing(ctx context.Context, kind store.Kind) func() (time.Duration, error) {
	return func() (time.Duration, error) {
		s, err := b.m.Open(ctx, session.OpenOptions{Kind: kind})
		if err != nil {
			return 0, err
		}
		defer s.Release()
		if err := started(spawner(b.procs), func(cmd *exec.Cmd) error {
			_, err := s.Start(ctx, cmd, session.StartOptions{})
			return err
		}); err != nil {
			return 0, err
		}
		began := time.Now()
		r, err := b.m.Close(ctx, s.ID(), session.CloseOptions{Now: true})
		took := time.Since(began)
		if err == nil && len(r.Processes) < b.procs {
			err = fmt.Errorf("the receipt names %d processes, want %d", len(r.Processes), b.procs)
		}
		return took, err
	}
}

// closeRow compares a close with the bare kernel interface.
func (b *bench) closeRow(ctx context.Context) row {
	bare := func() (time.Duration, error) {
		root, err := cgroup.Open(os.Getenv("SESSIONBOX_CGROUP_ROOT"))
		if err != nil {
			m, merr := cgroup.FindMount()
			if merr != nil {
				return 0, merr
			}
			dir, derr := cgroup.DefaultRoot(m)
			if derr != nil {
				return 0, derr
			}
			if root, err = cgroup.Open(dir); err != nil {
				return 0, err
			}
		}
		defer root.Close()
		g, err := root.Make(fmt.Sprintf("sbxtest-bare-%d", os.Getpid()))
		if err != nil {
			return 0, err
		}
		defer g.Close()
		if err := started(spawner(b.procs), g.Start); err != nil {
			return 0, err
		}
		began := time.Now()
		if err := os.WriteFile(g.Path()+"/cgroup.kill", []byte("1"), 0); err != nil {
			return 0, err
		}
		if err := g.WaitEmpty(ctx); err != nil {
			return 0, err
		}
		took := time.Since(began)
		return took, g.Remove(ctx)
	}
	return row{fmt.Sprintf("close --now of %d processes", b.procs), "write to cgroup.kill and wait", 1.5, max(b.n/10, 3), b.closing(ctx, b.kind), bare}
}

// started starts a spawner and returns when it has started all.
func started(cmd *exec.Cmd, start func(*exec.Cmd) error) error {
	out, w, err := os.Pipe()
	if err != nil {
		return err
	}
	defer out.Close()
	cmd.Stdout = w
	err = start(cmd)
	w.Close()
	if err != nil {
		return err
	}
	buf := make([]byte, 16)
	if _, err := out.Read(buf); err != nil {
		return fmt.Errorf("the spawner ended: %w", err)
	}
	go cmd.Wait()
	return nil
}

// fill opens the sessions that ls lists, and drain closes them.
func (b *bench) fill(ctx context.Context) error {
	for range b.sessions {
		s, err := b.m.Open(ctx, session.OpenOptions{Kind: b.kind})
		if err != nil {
			return err
		}
		s.Release()
	}
	return nil
}

func (b *bench) drain(ctx context.Context) error {
	infos, err := b.m.List(ctx, session.ListOptions{})
	if err != nil {
		return err
	}
	for _, i := range infos {
		if _, err := b.m.Close(ctx, i.ID, session.CloseOptions{Now: true}); err != nil {
			return err
		}
	}
	return nil
}

func (b *bench) lsRow() row {
	return row{fmt.Sprintf("ls with %d sessions", b.sessions), "an empty static Go program", 50, max(b.n/5, 5), command(b.bin, "ls", "--json"), command(b.empty)}
}
