package guard

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/sessionbox/sessionbox/pkg/internal/proc"
	"github.com/sessionbox/sessionbox/pkg/store"
)

func newPoller(t *testing.T, dir string) *poller {
	t.Helper()
	w, err := newWaiter(dir)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { w.Close() })
	return w.(*poller)
}

// sleeper is a process that ends with the test.
func sleeper(t testing.TB) (*exec.Cmd, proc.ID) {
	t.Helper()
	cmd := exec.Command("sleep", "600")
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { cmd.Process.Kill(); cmd.Wait() })
	id, err := proc.Lookup(cmd.Process.Pid)
	if err != nil {
		t.Fatal(err)
	}
	return cmd, id
}

func (p *poller) wait(t *testing.T, d time.Duration) (wake, time.Duration) {
	t.Helper()
	began := proc.Clock()
	w, err := p.Wait(began + d)
	if err != nil {
		t.Fatal(err)
	}
	return w, proc.Clock() - began
}

func TestWaitForProcesses(t *testing.T) {
	w := newPoller(t, t.TempDir())
	cmd, id := sleeper(t)
	other, otherID := sleeper(t)
	for _, p := range []proc.ID{id, id, otherID} {
		if err := w.Hold(p); err != nil {
			t.Fatal(err)
		}
	}
	w.Release(otherID)
	other.Process.Kill()
	if _, took := w.wait(t, 50*time.Millisecond); took < 50*time.Millisecond {
		t.Errorf("woken after %v for one that was released", took)
	}
	cmd.Process.Kill() // a zombie has ended
	got, took := w.wait(t, 5*time.Second)
	if !slices.Equal(got.ended, []proc.ID{id}) || took > time.Second {
		t.Errorf("%v after %v", got, took)
	}
	if _, took := w.wait(t, 20*time.Millisecond); took < 20*time.Millisecond {
		t.Error("told twice")
	}
	cmd.Wait()
	if err := w.Hold(id); !errors.Is(err, proc.ErrGone) {
		t.Errorf("Hold of one that has ended = %v", err)
	}
	id = otherID
	id.Start--
	if err := w.Hold(id); !errors.Is(err, proc.ErrReused) && !errors.Is(err, proc.ErrGone) {
		t.Errorf("Hold of a reused pid = %v", err)
	}
}

// With no descriptors left processes are looked at.
func TestWaitWithoutDescriptors(t *testing.T) {
	w := newPoller(t, t.TempDir())
	w.room = 0
	cmd, id := sleeper(t)
	if err := w.Hold(id); err != nil {
		t.Fatal(err)
	}
	time.AfterFunc(100*time.Millisecond, func() { cmd.Process.Kill() })
	for until := time.Now().Add(5 * time.Second); ; {
		got, _ := w.wait(t, 10*time.Second)
		if slices.Equal(got.ended, []proc.ID{id}) {
			break
		}
		if time.Now().After(until) {
			t.Fatal("its end was not told")
		}
	}
	cmd.Wait()
	if err := w.Hold(id); !errors.Is(err, proc.ErrGone) {
		t.Errorf("Hold of one that has ended = %v", err)
	}
}

func TestWaitTimer(t *testing.T) {
	w := newPoller(t, t.TempDir())
	for _, d := range []time.Duration{20 * time.Millisecond, 0, -time.Hour, 5 * time.Millisecond, 5 * time.Millisecond} {
		began := proc.Clock()
		if _, err := w.Wait(max(1, began+d)); err != nil {
			t.Fatal(err)
		}
		if took := proc.Clock() - began; took < d || took > max(0, d)+time.Second {
			t.Errorf("%v took %v", d, took)
		}
	}
	time.AfterFunc(20*time.Millisecond, w.Wake)
	if _, err := w.Wait(0); err != nil { // for ever, but for that
		t.Fatal(err)
	}
	w.Wake() // before somebody waits
	w.Wake()
	if _, took := w.wait(t, 5*time.Second); took > time.Second {
		t.Error("a wake was lost")
	}
}

// changes gives what has changed once something has.
func (p *poller) changes(t *testing.T) ([]string, bool) {
	t.Helper()
	w, _ := p.wait(t, 2*time.Second)
	if !w.changed {
		t.Fatal("no change was told")
	}
	ids, all := p.Changes()
	slices.Sort(ids)
	return ids, all
}

func (p *poller) quiet(t *testing.T) {
	t.Helper()
	for {
		w, _ := p.wait(t, 20*time.Millisecond)
		if !w.changed {
			return
		}
		if ids, all := p.Changes(); len(ids) > 0 || all {
			t.Errorf("%v, all %v have changed though nothing has", ids, all)
		}
	}
}

func newRecordsRig(t *testing.T) (*store.Store, *poller) {
	t.Helper()
	dir := filepath.Join(t.TempDir(), "state")
	st, err := store.Open(store.Dirs{State: dir, History: filepath.Join(dir, "history"), UID: os.Geteuid(), Given: true})
	if err != nil {
		t.Fatal(err)
	}
	l, err := st.LockGuard(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(l.Unlock)
	return st, newPoller(t, st.SessionsDir())
}

func claim(t testing.TB, st *store.Store) store.Session {
	t.Helper()
	rec := store.Session{ID: store.NewID(), State: store.StateOpen, Created: time.Now(), Kind: store.KindCgroup}
	if err := st.Claim(t.Context(), rec); err != nil {
		t.Fatal(err)
	}
	return rec
}

func TestWaitForRecords(t *testing.T) {
	st, w := newRecordsRig(t)
	rec := claim(t, st)
	ids, all := w.changes(t)
	want(t, "claimed", ids, []string{rec.ID})
	want(t, "all", all, false)
	w.Follow(rec.ID)
	w.quiet(t)
	if _, err := st.Update(t.Context(), rec.ID, func(r *store.Session) error { r.Cwd = "/x"; return nil }); err != nil {
		t.Fatal(err)
	}
	ids, _ = w.changes(t)
	want(t, "updated", ids, []string{rec.ID})
	l, err := st.Lock(t.Context(), rec.ID, store.LockStart)
	if err != nil {
		t.Fatal(err)
	}
	task := store.Task{State: store.TaskRunning, Started: time.Now()}
	if err := l.AddTask(&task); err != nil {
		t.Fatal(err)
	}
	l.Unlock()
	ids, _ = w.changes(t)
	want(t, "task added", ids, []string{rec.ID})
	w.quiet(t)
	if err := st.PutTask(rec.ID, task); err != nil {
		t.Fatal(err)
	}
	ids, _ = w.changes(t)
	want(t, "task put", ids, []string{rec.ID})
	w.quiet(t)
	// Neither locks nor history are records.
	if err := st.Append(t.Context(), store.Event{Event: "x"}); err != nil {
		t.Fatal(err)
	}
	if l, err = st.Lock(t.Context(), rec.ID, store.LockClose); err != nil {
		t.Fatal(err)
	}
	l.Unlock()
	w.quiet(t)
	if err := st.Remove(t.Context(), rec.ID); err != nil {
		t.Fatal(err)
	}
	ids, _ = w.changes(t)
	want(t, "removed", slices.Contains(ids, rec.ID), true)
	w.Forget(rec.ID)
	w.quiet(t)
	want(t, "watches", len(w.records.places), 0)
}

// The directory of the sessions goes and comes again.
func TestWaitRecordsReplaced(t *testing.T) {
	st, w := newRecordsRig(t)
	claim(t, st)
	w.changes(t)
	if err := os.Rename(st.SessionsDir(), st.SessionsDir()+".old"); err != nil {
		t.Fatal(err)
	}
	_, all := w.changes(t)
	want(t, "all", all, true)
	want(t, "sure without a directory", w.Sure(), false)
	rec := claim(t, st)
	// Nothing tells of it: that is what not being sure means.
	if _, all := w.Changes(); all {
		t.Error("all again")
	}
	want(t, "sure", w.Sure(), true)
	w.Follow(rec.ID)
	claim(t, st)
	if ids, _ := w.changes(t); len(ids) != 1 {
		t.Errorf("%v", ids)
	}
}

// More than the kernel keeps: it says so, and everything is to be read.
func TestWaitOverflow(t *testing.T) {
	b, err := os.ReadFile("/proc/sys/fs/inotify/max_queued_events")
	if err != nil {
		t.Fatal(err)
	}
	var most int
	if _, err := fmt.Sscan(string(b), &most); err != nil || most > 1<<16 {
		t.Skipf("the queue holds %d events, %v", most, err)
	}
	st, w := newRecordsRig(t)
	names := [2]string{filepath.Join(st.SessionsDir(), "x0"), filepath.Join(st.SessionsDir(), "x1")}
	if err := unix.Mkdir(names[0], 0o700); err != nil {
		t.Fatal(err)
	}
	for i := range most/2 + 100 { // two events each
		if err := unix.Rename(names[i%2], names[1-i%2]); err != nil {
			t.Fatal(err)
		}
	}
	_, all := w.changes(t)
	want(t, "all", all, true)
	w.quiet(t)
	claim(t, st)
	_, all = w.changes(t)
	want(t, "all afterwards", all, false)
}

// A poller that is closed has nothing open.
func TestWaitCloses(t *testing.T) {
	open := func() int {
		e, err := os.ReadDir("/proc/self/fd")
		if err != nil {
			t.Fatal(err)
		}
		return len(e)
	}
	_, id := sleeper(t)
	runtime.GC()
	before := open()
	w, err := newWaiter(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	w.Hold(id)
	w.Close()
	if n := open(); n > before {
		t.Errorf("%d descriptors, %d before", n, before)
	}
}
