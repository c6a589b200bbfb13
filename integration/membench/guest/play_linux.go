package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/sessionbox/sessionbox/integration/membench/plan"
	"github.com/sessionbox/sessionbox/integration/membench/score"
)

const (
	// settle is from when everything stands to go: a session just opened is spared.
	settle = 12 * time.Second
	// readyTime is how long actors may take to get what they have before go.
	readyTime = 3 * time.Minute
	// after is how long a run without a guard goes on when somebody was killed.
	after = 5 * time.Second
	// outside is the name under which actors of no session are kept.
	outside = "outside"
)

// play plays a scenario once.
func play(ctx context.Context, s *plan.Scenario, guard string) (err error) {
	t := newTape(os.Stdout)
	defer t.close()
	defer func() {
		if err != nil {
			t.say(score.Record{What: score.Fail, Text: err.Error()})
		}
	}()
	r := &stage{s: s, tape: t, box: &box{s: s, guard: guard, tape: t, names: map[string]string{}, on: make(chan string, 64)}}
	t.say(score.Record{What: score.Ready, Text: machine()})
	defer func() { r.strike(err) }()
	if err := r.build(ctx); err != nil {
		return err
	}
	return r.perform(ctx)
}

// stage is one run.
type stage struct {
	s     *plan.Scenario
	tape  *tape
	box   *box
	dir   string
	cast  []*member
	undo  []func()
	begun time.Duration
	all   sync.WaitGroup

	killed time.Duration // when the first was, 0 for none

	mu     sync.Mutex
	closed []string // by a deed
}

// build makes everything that is there before go.
func (r *stage) build(ctx context.Context) error {
	dir, err := os.MkdirTemp("/run", "membench-")
	if err != nil {
		return err
	}
	r.dir = dir
	r.undo = append(r.undo, func() { os.RemoveAll(dir) })
	if err := os.Chmod(dir, 0o777); err != nil {
		return err
	}
	for _, line := range r.s.Setup {
		if err := shell(ctx, line); err != nil {
			return err
		}
	}
	undo, err := r.box.configure()
	if err != nil {
		return err
	}
	r.undo = append(r.undo, undo)
	stop, err := startPeer(ctx, r.box.guard, r.tape)
	r.undo = append(r.undo, stop)
	if err != nil {
		return err
	}
	if err := r.startOutside(); err != nil {
		return err
	}
	want := 0
	for i := range r.s.Sessions {
		x := &r.s.Sessions[i]
		if err := r.box.open(ctx, dir, x); err != nil {
			return err
		}
		want += x.Sum()
	}
	for _, a := range r.s.Outside {
		want += max(1, a.Count)
	}
	return r.waitReady(want)
}

// startOutside starts what goes on in no session.
func (r *stage) startOutside() error {
	if len(r.s.Outside) == 0 {
		return nil
	}
	cmd := exec.Command("systemd-run", "--quiet", "--collect", "--unit=membench-outside", self, "lead", r.dir, r.s.Name, outside)
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("start what is outside: %w: %s", err, out)
	}
	r.undo = append(r.undo, func() { shell(context.Background(), "systemctl stop membench-outside.service") })
	return nil
}

// waitReady waits until all actors have what they have before go.
func (r *stage) waitReady(want int) error {
	for end := clock() + readyTime; ; time.Sleep(100 * time.Millisecond) {
		if err := r.meet(); err != nil {
			return err
		}
		ready := 0
		for _, m := range r.cast {
			if m.page.ready.Load() != 0 {
				ready++
			}
			if m.gone() {
				return fmt.Errorf("a process of %s ended before it began", m.session)
			}
		}
		if ready == want {
			return nil
		}
		if clock() > end {
			return fmt.Errorf("%d of %d processes are ready", ready, want)
		}
	}
}

// meet takes in actors that have come.
func (r *stage) meet() error {
	found, err := filepath.Glob(filepath.Join(r.dir, "page.*"))
	if err != nil {
		return err
	}
	for _, path := range found {
		if r.knows(path) {
			continue
		}
		m, err := newMember(r.s, path)
		if errors.Is(err, errNotYet) {
			continue
		}
		if err != nil {
			return err
		}
		r.cast = append(r.cast, m)
	}
	return nil
}

func (r *stage) knows(path string) bool {
	for _, m := range r.cast {
		if m.path == path {
			return true
		}
	}
	return false
}

// perform lets it go, and watches.
func (r *stage) perform(ctx context.Context) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	if err := r.box.listen(ctx); err != nil {
		return err
	}
	if err := kernel(ctx, r.box); err != nil {
		return err
	}
	time.Sleep(settle)
	r.begun = clock()
	r.tape.begin(r.begun)
	if err := os.WriteFile(goPath(r.dir), nil, 0o644); err != nil {
		return err
	}
	asked := 0
	r.all.Go(func() { asked = probe(ctx, r.tape) })
	r.all.Go(func() { r.gauge(ctx) })
	r.all.Go(func() { r.doDeeds(ctx) })
	watch, end := context.WithTimeout(ctx, r.s.Length)
	defer end()
	longest := heartbeat(watch, r.tape, func() {
		if at := r.look(); at != 0 && r.box.guard == "off" && r.s.Expect.OOM && clock()-at > after {
			end() // what it is there for is known
		}
	})
	cancel()
	r.all.Wait()
	r.sum()
	r.tape.say(score.Record{What: score.End, Seconds: longest.Seconds(), N: asked})
	return nil
}

// strike takes everything down.
func (r *stage) strike(err error) {
	ctx := context.Background()
	if err != nil { // who plays wants to see why
		for _, args := range [][]string{{"ls"}, {"doctor"}} {
			out, err := r.box.run(ctx, args...)
			fmt.Println(out, err)
		}
	}
	if out, err := r.box.run(ctx, "close", "--now", "--all"); err != nil {
		fmt.Println(out, err)
	}
	endGuard()
	for _, undo := range slices.Backward(r.undo) {
		undo()
	}
	for _, line := range append(r.s.Teardown, "echo 1 >/proc/sys/vm/drop_caches", "swapoff -a && swapon /dev/vdc 2>/dev/null || :") {
		if err := shell(ctx, line); err != nil {
			fmt.Println(err)
		}
	}
}

// machine says what this is.
func machine() string {
	text := func(path string) string {
		b, _ := os.ReadFile(path)
		return strings.TrimSpace(string(b))
	}
	controllers := text("/sys/fs/cgroup/cgroup.controllers")
	if controllers == "" {
		controllers = "v1"
	}
	return fmt.Sprintf("Linux %s, %d MiB, %d available, lru_gen %s, cgroup %s", text("/proc/sys/kernel/osrelease"), meminfo("MemTotal"), meminfo("MemAvailable"), text("/sys/kernel/mm/lru_gen/enabled"), controllers)
}
