package main

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"time"

	"github.com/sessionbox/sessionbox/pkg/cgroup"
	"github.com/sessionbox/sessionbox/pkg/session"
	"github.com/sessionbox/sessionbox/pkg/store"
)

// What is watched: so many sessions of so many processes, on a host of so many.
const (
	watchedSessions = 20
	watchedEach     = 50
	hostOf          = 2000
	watchFor        = 30 * time.Second
	calmAfter       = 15 * time.Second // who watches looks less often when nothing was new for a while
)

// runLineage measures what only the lineage box costs.
func (b *bench) runLineage(ctx context.Context, missed int) (int, error) {
	if _, err := b.m.Close(ctx, "bench", session.CloseOptions{Now: true}); err != nil {
		return missed, err
	}
	missed += report(row{fmt.Sprintf("close --now of %d processes", b.procs), "the same in a cgroup box", 0, max(b.n/10, 3),
		b.closing(ctx, store.KindLineage), b.closing(ctx, store.KindCgroup)})
	over, err := b.watching(ctx)
	return missed + over, err
}

// watching measures what those who record descendants use of the processor.
func (b *bench) watching(ctx context.Context) (missed int, err error) {
	root, err := cgroup.Open(os.Getenv("SESSIONBOX_CGROUP_ROOT"))
	if err != nil {
		return 0, err
	}
	defer root.Close()
	crowd, err := root.Make("crowd")
	if err != nil {
		return 0, err
	}
	defer crowd.Close()
	if n := hostOf - watchedSessions*watchedEach - len(processes("")); n > 0 {
		if err := started(spawner(n), crowd.Start); err != nil {
			return 0, err
		}
	}
	for range watchedSessions {
		s, err := b.m.Open(ctx, session.OpenOptions{Kind: store.KindLineage})
		if err != nil {
			return 0, err
		}
		defer b.m.Close(ctx, s.ID(), session.CloseOptions{Now: true})
		defer s.Release()
		if err := started(spawner(watchedEach), func(cmd *exec.Cmd) error {
			_, err := s.Start(ctx, cmd, session.StartOptions{})
			return err
		}); err != nil {
			return 0, err
		}
	}
	time.Sleep(calmAfter)
	before := processes(b.bin)
	time.Sleep(watchFor)
	var all, most float64
	for pid, ticks := range processes(b.bin) {
		share := float64(ticks-before[pid]) / 100 / watchFor.Seconds() * 100 // USER_HZ is 100
		all, most = all+share, max(most, share)
	}
	verdict := "met"
	if all/watchedSessions > 1 {
		verdict, missed = "MISSED", 1
	}
	fmt.Printf("watching %d sessions of %d processes on a host of %d: %.2f %% of a core together, %.3f %% each, %.3f %% at most  budget 1 %% each: %s\n",
		watchedSessions, watchedEach, len(processes("")), all, all/watchedSessions, most, verdict)
	return missed, nil
}

// processes are those that run a program, all with "", and the ticks of the processor that
// each has used.
func processes(program string) map[int]uint64 {
	all := map[int]uint64{}
	dirs, _ := filepath.Glob("/proc/[0-9]*")
	for _, dir := range dirs {
		pid, err := strconv.Atoi(filepath.Base(dir))
		if err != nil {
			continue
		}
		if exe, _ := os.Readlink(dir + "/exe"); program != "" && exe != program {
			continue
		}
		b, err := os.ReadFile(dir + "/stat")
		at := bytes.LastIndexByte(b, ')')
		if err != nil || at < 0 {
			continue
		}
		f := bytes.Fields(b[at+1:])
		if len(f) < 13 || string(f[0]) == "Z" {
			continue
		}
		user, _ := strconv.ParseUint(string(f[11]), 10, 64)
		system, _ := strconv.ParseUint(string(f[12]), 10, 64)
		all[pid] = user + system
	}
	return all
}
