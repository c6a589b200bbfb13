package integration_test

import (
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/sessionbox/sessionbox/pkg/session"
)

// TestFormerOwner is H9: a harness whose session another has resumed goes on with its
// stale view. Nothing of the new owner's work ends or stops by it, whatever it calls.
func TestFormerOwner(t *testing.T) {
	r := newRig(t)
	need(t, "bash")
	c := r.canary()
	p := r.payloads("payload")
	id := r.open("work")
	script := `s=$1; sb=$2; dir=$3
		"$sb" open --name work --attach --owner-pid $$ >/dev/null || exit 90
		touch "$dir/mine"
		until [ -e "$dir/taken" ]; do sleep 0.02; done
		for call in "kill $s/1" "kill $s" "kill -s TERM $s" "freeze $s" "thaw $s" "limit $s --pids-max 1" "keep $s/1" "close $s" "close --now $s" "touch $s"; do
			"$sb" $call >/dev/null; echo "$call: $?"
		done
		"$sb" exec $s -- true; echo "exec: $?"`
	harness := r.start("bash", "-c", script, "harness", id, bin(), r.home)
	eventually(t, "the harness has its session", func() bool { return exists(filepath.Join(r.home, "mine")) })
	other := r.owner()
	defer other.die()
	r.run("open", "--name", "work", "--take-over", "--owner-pid", other.pid()).must(t, 0, "take over")
	r.detach(id, p.argv("payload")...)
	p.await(1)
	write(t, filepath.Join(r.home, "taken"))
	o := harness.wait()
	for line := range strings.Lines(o.text()) {
		call, code, _ := strings.Cut(strings.TrimSpace(line), ": ")
		if want := "7"; code != want && (call != "exec" || code != "125") {
			t.Errorf("%s for a former owner: exit code %s, want %s", call, code, want)
		}
	}
	p.ticking()
	c.lives()
	// Whoever never owned it may end it.
	r.closed(id, graceFlags()...)
	p.stopped()
}

// TestStarterThreadEnds is H13 for the library: the thread that started a task ends, and
// the task goes on.
func TestStarterThreadEnds(t *testing.T) {
	r := newRig(t)
	c := r.canary()
	p := r.payloads("payload")
	m := r.manager()
	s, err := m.Open(t.Context(), session.OpenOptions{Name: "thread"})
	if err != nil {
		t.Fatal(err)
	}
	defer s.Release()
	started := make(chan *session.Task, 1)
	go func() {
		runtime.LockOSThread() // never unlocked: it ends with the goroutine
		argv := p.argv("payload")
		task, err := s.Start(t.Context(), exec.Command(argv[0], argv[1:]...), session.StartOptions{})
		if err != nil {
			t.Error(err)
		}
		started <- task
	}()
	task := <-started
	p.await(1)
	time.Sleep(500 * time.Millisecond)
	p.ticking()
	if _, err := m.Close(t.Context(), "thread", session.CloseOptions{Now: true}); err != nil {
		t.Error(err)
	}
	if _, err := task.Wait(); err != nil {
		t.Error(err)
	}
	p.stopped()
	c.lives()
}

// manager is the library on the rig's records, in this very process.
func (r *rig) manager() *session.Manager {
	r.t.Helper()
	m, err := session.New(session.Config{StateDir: r.stateDir(), Helper: bin(), NoGuard: true})
	if err != nil {
		r.t.Fatal(err)
	}
	return m
}

// TestBoxReplaced is H15 for what a session is: the number of its directory is another's
// by now, and so is what runs in there.
func TestBoxReplaced(t *testing.T) {
	r := newRig(t)
	if r.box != "cgroup" || os.Geteuid() != 0 {
		t.Skip("needs boxes that a test may replace")
	}
	id := r.open("replaced")
	path := r.inspect(id).Box.Path
	if err := removeGroup(path); err != nil {
		t.Fatal(err)
	}
	if err := os.Mkdir(path, 0o755); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := killGroup(path); err != nil {
			t.Error(err)
		}
		if err := removeGroup(path); err != nil {
			t.Error(err)
		}
	})
	stranger := r.canary()
	if err := os.WriteFile(filepath.Join(path, "cgroup.procs"), []byte(strconv.Itoa(stranger.id.pid)), 0); err != nil {
		t.Fatal(err)
	}
	r.run("kill", id)
	r.run("freeze", id)
	stranger.lives()
	if i := r.inspect(id); !i.Box.Gone || i.Processes != 0 {
		t.Errorf("a box that is another's is shown as the session's: %+v", i.Box)
	}
	r.run("close", "--now", id).must(t, 0, "close of a session whose box is another's")
	stranger.lives()
	stranger.end()
}

// TestGoneBeforeForgotten is H20: as long as anybody of a session lives, its record is
// there, its name is taken and its list entry stands; what is released is released after.
func TestGoneBeforeForgotten(t *testing.T) {
	r := newRig(t)
	c := r.canary()
	p := r.payloads("payload")
	id := r.open("h20")
	for range 8 {
		r.exec(id, p.argv("E09")...).must(t, 0, "exec")
	}
	p.await(8)
	var over atomic.Bool
	var wg sync.WaitGroup
	wg.Go(func() {
		for !over.Load() {
			gone := !exists(r.sessionRecord(id)) || !exists(filepath.Join(r.stateDir(), "names", "h20"))
			if n := len(livingIn(p.dir)); gone && n > 0 {
				t.Errorf("the record is gone, and %d payloads live", n)
				return
			}
		}
	})
	closing := r.start(bin(), "close", "--grace", "500ms", id)
	for closing.id.alive() {
		o := r.run("open", "--name", "h20", "--backend", r.box)
		if n := len(livingIn(p.dir)); o.code == 0 && n > 0 {
			t.Errorf("its name was given to another, and %d payloads live", n)
		}
		if o.code == 0 {
			break
		}
	}
	closing.wait().must(t, 0, "close")
	over.Store(true)
	wg.Wait()
	p.stopped()
	c.lives()
	r.run("close", "h20")
}

// TestGuardRestarted is H16 for the guard: it is killed and started again, and nothing
// that it watches ends by that. What became due meanwhile is done by the next one.
func TestGuardRestarted(t *testing.T) {
	r := newRig(t)
	c := r.canary()
	living, doomed := r.payloads("living"), r.payloads("doomed")
	owner, mortal := r.owner(), r.owner()
	defer owner.die()
	id := r.open("living", "--owner-pid", owner.pid())
	r.open("doomed", "--owner-pid", mortal.pid(), "--grace", "500ms")
	r.detach("living", living.argv("E05")...)
	r.detach("doomed", doomed.argv("E05")...)
	living.await(1)
	doomed.await(1)
	for range 3 {
		g := r.start(bin(), "guard")
		time.Sleep(300 * time.Millisecond)
		if !g.id.alive() {
			t.Fatalf("the guard has ended: %s", g.show())
		}
		g.die()
		living.ticking()
		doomed.ticking()
	}
	mortal.die()
	g := r.start(bin(), "guard")
	eventually(t, "the guard to close what lost its owner", func() bool { _, ok := r.listed("doomed"); return !ok })
	g.die()
	doomed.stopped()
	living.ticking()
	c.lives()
	r.closed(id, graceFlags()...)
	living.stopped()
}
