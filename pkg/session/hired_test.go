package session

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/sessionbox/sessionbox/pkg/internal/engines"
	"github.com/sessionbox/sessionbox/pkg/internal/shim"
	"github.com/sessionbox/sessionbox/pkg/store"
)

func TestShimConfig(t *testing.T) {
	m, err := New(Config{StateDir: t.TempDir(), NoGuard: true})
	if err != nil {
		t.Fatal(err)
	}
	for _, strict := range []bool{true, false} {
		if c := m.shimConfig(&store.Session{ID: "abcdefghij", Cookie: "c", Strict: strict}); c.Strict != strict || c.TableLock == "" || c.Cookie != "c" {
			t.Errorf("the shims of a session that is strict (%t) are told %+v", strict, c)
		}
	}
}

// fakeEngine is a docker at a socket that has containers: by id, what it says of each.
type fakeEngine struct {
	socket string

	mu         sync.Mutex
	containers map[string]map[string]string // their labels
	answer     func(w http.ResponseWriter, r *http.Request) bool
	asked      []string
}

func newFakeEngine(t *testing.T) *fakeEngine {
	t.Helper()
	dir, err := os.MkdirTemp("", "sbxe-") // the path of a socket is short
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	e := &fakeEngine{socket: filepath.Join(dir, "s"), containers: map[string]map[string]string{}}
	l, err := net.Listen("unix", e.socket)
	if err != nil {
		t.Fatal(err)
	}
	server := &http.Server{Handler: e}
	go server.Serve(l)
	t.Cleanup(func() { server.Close() })
	return e
}

func (e *fakeEngine) answers(answer func(w http.ResponseWriter, r *http.Request) bool) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.answer = answer
}

func refuses(w http.ResponseWriter, _ *http.Request) bool { w.WriteHeader(500); return true }

// put has the session make a container.
func (e *fakeEngine) put(rec *store.Session, id string) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.containers[id] = map[string]string{engines.LabelID: rec.ID, engines.LabelToken: engines.Proof{Cookie: rec.Cookie}.NewToken()}
}

func (e *fakeEngine) there() (ids []string) {
	e.mu.Lock()
	defer e.mu.Unlock()
	return slices.Sorted(maps.Keys(e.containers))
}

func (e *fakeEngine) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	e.mu.Lock()
	answer := e.answer
	e.asked = append(e.asked, r.Method+" "+r.URL.Path)
	e.mu.Unlock()
	if answer != nil && answer(w, r) {
		return
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	part := strings.Split(strings.Trim(r.URL.Path, "/"), "/")
	switch {
	case r.URL.Path == "/containers/json":
		all := []any{}
		for id, labels := range e.containers {
			all = append(all, map[string]any{"Id": id, "State": "running", "ImageID": "i", "Labels": labels, "Created": 1})
		}
		_ = json.NewEncoder(w).Encode(all)
	case part[0] == "images":
		io.WriteString(w, "{}")
	case r.Method == http.MethodDelete:
		delete(e.containers, part[1])
		w.WriteHeader(http.StatusNoContent)
	default:
		w.WriteHeader(http.StatusNotFound)
	}
}

// hiredSession is a session that has called engines, without a box.
func hiredSession(t *testing.T, called ...engines.Engine) *closing {
	t.Helper()
	m, err := New(Config{StateDir: t.TempDir(), NoGuard: true})
	if err != nil {
		t.Fatal(err)
	}
	c := &closing{m: m, o: CloseOptions{Now: true}, rec: store.Session{ID: "abcdefghij", Cookie: "c00c1e", Shims: true, Created: time.Now()}}
	dir, err := shim.Make(string(m.shimDir(&c.rec)), m.shimConfig(&c.rec), "/proc/self/exe")
	if err != nil {
		t.Fatal(err)
	}
	for i := range called {
		noteEngine(t, dir, called[i], true)
	}
	return c
}

// noteEngine writes down a call of long ago, and whether the engine answered it.
func noteEngine(t *testing.T, dir shim.Dir, e engines.Engine, answered bool) {
	t.Helper()
	note := struct {
		engines.Engine
		Driver *engines.Driver `json:"driver,omitempty"`
	}{Engine: e}
	if answered {
		note.Driver = &engines.Driver{}
	}
	b, err := json.Marshal(&note)
	if err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(string(dir), "engines", e.Key()+".json")
	if err := os.WriteFile(path, b, 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Chtimes(path, time.Unix(1, 0), time.Unix(1, 0)); err != nil { // nothing is in flight
		t.Fatal(err)
	}
}

func (e *fakeEngine) engine() engines.Engine {
	return engines.Engine{Tool: "docker", Options: []string{"--host=unix://" + e.socket}}
}

func fates(all []HiredContainer) map[string]string {
	f := map[string]string{}
	for _, c := range all {
		f[c.ID] = c.Fate
	}
	return f
}

// TestFinishAgain: a close may finish twice: what came meanwhile ends, too, and what the
// receipt says is what the last one found, once.
func TestFinishAgain(t *testing.T) {
	e := newFakeEngine(t)
	c := hiredSession(t, e.engine())
	e.put(&c.rec, "first")
	h := c.beginHired(t.Context())
	if err := h.finish(t.Context()); err != nil {
		t.Fatal(err)
	}
	e.put(&c.rec, "second") // by a stray
	e.answers(func(w http.ResponseWriter, r *http.Request) bool {
		return r.Method == http.MethodDelete && refuses(w, r)
	})
	if err := h.finish(t.Context()); !errors.Is(err, ErrSurvivors) {
		t.Errorf("with one that stays: %v", err)
	}
	if got := fates(c.r.Containers); !maps.Equal(got, map[string]string{"first": FateKilled, "second": FateSurvived}) || len(c.r.Containers) != 2 {
		t.Errorf("with one that stays the receipt says %v", got)
	}
	e.answers(refuses)
	if err := h.finish(t.Context()); !errors.Is(err, ErrSurvivors) || len(c.r.Notes) != 1 {
		t.Errorf("by an engine that refuses: %v; notes %q", err, c.r.Notes)
	}
	e.answers(nil)
	if err := h.finish(t.Context()); err != nil {
		t.Error(err)
	}
	if got := fates(c.r.Containers); !maps.Equal(got, map[string]string{"first": FateKilled, "second": FateKilled}) || len(c.r.Containers) != 2 || len(c.r.Notes) > 0 || len(e.there()) > 0 {
		t.Errorf("at last the receipt says %v, notes %q; left are %q", got, c.r.Notes, e.there())
	}
}

// TestJoinJobs: what was removed by the first finish stays told, and what was not is what the
// last one says.
func TestJoinJobs(t *testing.T) {
	before := []JobInfo{{Kind: "at", ID: "1", Fate: FateRemoved}, {Kind: "at", ID: "2", Fate: FateSurvived}, {Kind: "cron", Line: "x", Fate: FateRemoved}, {Kind: "at", Fate: FateSurvived}}
	now := []JobInfo{{Kind: "at", ID: "2", Fate: FateRemoved}, {Kind: "cron", Line: "x", Fate: FateSurvived}}
	if got := joinJobs(before, now); !slices.Equal(got, append([]JobInfo{before[0]}, now...)) {
		t.Errorf("%+v", got)
	}
}

// TestFinishUnheard: an engine that is not heard to the end may have what no file tells of: if
// it hangs, always; if it refuses or is gone, what was made without a file. One that never
// answered has nothing.
func TestFinishUnheard(t *testing.T) {
	over := make(chan struct{})
	t.Cleanup(func() { close(over) })
	hangs := func(http.ResponseWriter, *http.Request) bool { <-over; return true }
	for name, k := range map[string]struct {
		answer             func(http.ResponseWriter, *http.Request) bool
		blind, lost, never bool
		left               int
	}{
		"refuses, no file":          {refuses, false, false, false, 0},
		"refuses, compose":          {refuses, true, false, false, 1},
		"hangs, no file":            {hangs, false, false, false, 1},
		"answers, compose":          {nil, true, false, false, 0},
		"refuses, records are lost": {refuses, true, true, false, 0}, // the usual ones are none of these
		"always refused, compose":   {refuses, true, false, true, 0},
		"always hung, no file":      {hangs, false, false, true, 0},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			e := newFakeEngine(t)
			called := e.engine()
			c := hiredSession(t, called)
			dir := string(c.m.shimDir(&c.rec))
			if k.blind {
				if err := os.WriteFile(filepath.Join(dir, "engines", called.Key()+".blind"), nil, 0o600); err != nil {
					t.Fatal(err)
				}
			}
			if k.never {
				noteEngine(t, shim.Dir(dir), called, false)
			}
			if k.lost {
				if err := os.RemoveAll(dir); err != nil {
					t.Fatal(err)
				}
			}
			e.answers(k.answer)
			err := c.beginHired(t.Context()).finish(t.Context())
			if (err != nil) != (k.left > 0) || c.r.hiredLeft() != k.left {
				t.Errorf("%v, %+v", err, c.r.Containers)
			}
			if k.left > 0 && (!strings.Contains(c.r.Containers[0].Why, "does not answer") || c.r.Containers[0].At != called.String()) {
				t.Errorf("%+v", c.r.Containers)
			}
		})
	}
}

// TestFinishUntold: a container whose engine does not say whether its labels came with its
// image may be the session's.
func TestFinishUntold(t *testing.T) {
	e := newFakeEngine(t)
	c := hiredSession(t, e.engine())
	e.put(&c.rec, "untold")
	e.answers(func(w http.ResponseWriter, r *http.Request) bool {
		return strings.HasPrefix(r.URL.Path, "/images") && refuses(w, r)
	})
	h := c.beginHired(t.Context())
	if err := h.finish(t.Context()); !errors.Is(err, ErrSurvivors) || fates(c.r.Containers)["untold"] != FateSurvived || len(e.there()) != 1 {
		t.Errorf("%v, %+v", err, c.r.Containers)
	}
	e.answers(refuses)
	if err := h.finish(t.Context()); !errors.Is(err, ErrSurvivors) || fates(c.r.Containers)["untold"] != FateSurvived {
		t.Errorf("when it is silent: %v, %+v", err, c.r.Containers)
	}
	e.answers(nil)
	if err := h.finish(t.Context()); err != nil || fates(c.r.Containers)["untold"] != FateKilled || len(e.there()) > 0 {
		t.Errorf("when it is told: %v, %+v", err, c.r.Containers)
	}
}

// TestFinishHurried: a close that is told to hurry still ends what answers at once.
func TestFinishHurried(t *testing.T) {
	over, cancel := context.WithCancel(t.Context())
	cancel()
	e := newFakeEngine(t)
	c := hiredSession(t, e.engine())
	e.put(&c.rec, "quick")
	if err := c.beginHired(over).finish(over); err != nil || len(e.there()) > 0 {
		t.Errorf("%v, %+v", err, c.r.Containers)
	}
	// One that takes its time is not waited for, and may have something.
	bin := t.TempDir()
	if err := os.WriteFile(filepath.Join(bin, "podman"), []byte("#!/bin/sh\nexec sleep 600\n"), 0o755); err != nil {
		t.Fatal(err)
	}
	t.Setenv("PATH", bin+":/usr/bin:/bin")
	c = hiredSession(t, engines.Engine{Tool: "podman"})
	if err := c.beginHired(over).finish(over); !errors.Is(err, ErrSurvivors) || len(c.r.Containers) != 1 || !strings.Contains(c.r.Containers[0].Why, context.Canceled.Error()) {
		t.Errorf("%v, %+v", err, c.r.Containers)
	}
}

// TestRemovers: an engine is not asked to remove everything at once.
func TestRemovers(t *testing.T) {
	e := newFakeEngine(t)
	c := hiredSession(t, e.engine())
	for i := range 3 * removers {
		e.put(&c.rec, fmt.Sprint("c", i))
	}
	var mu sync.Mutex
	now, most := 0, 0
	full := make(chan struct{})
	e.answers(func(_ http.ResponseWriter, r *http.Request) bool {
		if r.Method != http.MethodDelete {
			return false
		}
		mu.Lock()
		if now++; now > most {
			if most = now; most == removers {
				close(full)
			}
		}
		mu.Unlock()
		<-full
		time.Sleep(20 * time.Millisecond) // who else comes is counted
		mu.Lock()
		defer mu.Unlock()
		now--
		return false
	})
	if err := c.beginHired(t.Context()).finish(t.Context()); err != nil || most != removers || len(e.there()) > 0 {
		t.Errorf("%v; at most %d were removed at once, %d are left", err, most, len(e.there()))
	}
}

// TestTwoEngines: of two that are called alike, and differ by their environment, the one that
// does not answer does not keep the other from being asked.
func TestTwoEngines(t *testing.T) {
	bin := t.TempDir()
	rec := hiredSession(t).rec
	script := `#!/bin/sh
[ -z "$CONTAINER_HOST" ] || { echo "cannot connect" >&2; exit 125; }
case "$1 $2" in
"ps --all") [ ! -e ` + bin + `/c ] || echo c;;
"container inspect") echo '[{"Id":"c","State":{"Status":"running"},"Config":{"Labels":{"sessionbox":"` + rec.ID + `","sessionbox.token":"` +
		engines.Proof{Cookie: rec.Cookie}.NewToken() + `"}}}]';;
"rm --force") rm ` + bin + `/c;;
esac
`
	for name, text := range map[string]string{"podman": script, "c": ""} {
		if err := os.WriteFile(filepath.Join(bin, name), []byte(text), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	t.Setenv("PATH", bin+":/usr/bin:/bin")
	c := hiredSession(t, engines.Engine{Tool: "podman", Env: map[string]string{"HOME": bin, "CONTAINER_HOST": "ssh://dead"}},
		engines.Engine{Tool: "podman", Env: map[string]string{"HOME": bin}})
	if err := c.beginHired(t.Context()).finish(t.Context()); err != nil || fates(c.r.Containers)["c"] != FateKilled || len(c.r.Notes) != 1 {
		t.Errorf("%v, %+v, %q", err, c.r.Containers, c.r.Notes)
	}
	if _, err := os.Stat(filepath.Join(bin, "c")); err == nil {
		t.Error("the container is left")
	}
}

// TestListAsksOnce: a look at many sessions asks an engine once, whether it answers or not.
func TestListAsksOnce(t *testing.T) {
	e := newFakeEngine(t)
	c := hiredSession(t, e.engine())
	other := store.Session{ID: "bbbbbbbbbb", Cookie: "another", Shims: true, Created: time.Now()}
	if _, err := shim.Make(string(c.m.shimDir(&other)), c.m.shimConfig(&other), "/proc/self/exe"); err != nil {
		t.Fatal(err)
	}
	b, err := json.Marshal(engines.Engine{Tool: "docker", Options: e.engine().Options, Env: map[string]string{"HOME": "/elsewhere"}})
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(string(c.m.shimDir(&other)), "engines", "a.json"), b, 0o600); err != nil {
		t.Fatal(err)
	}
	e.put(&c.rec, "one")
	e.put(&other, "two")
	for want, answer := range map[string]func(http.ResponseWriter, *http.Request) bool{"one two": nil, "": refuses} {
		e.answers(answer)
		e.asked = nil
		shared := newAsked()
		var ids []string
		for _, rec := range []*store.Session{&c.rec, &other} {
			cs, _, _, problems := c.m.lookAmong(t.Context(), rec, false, shared)
			if (len(problems) > 0) != (want == "") {
				t.Errorf("problems %q", problems)
			}
			for _, k := range cs {
				ids = append(ids, k.ID)
			}
		}
		lists := slices.DeleteFunc(e.asked, func(a string) bool { return a != "GET /containers/json" })
		if strings.Join(ids, " ") != want || len(lists) != 1 {
			t.Errorf("found %q, want %q; it was asked %d times", ids, want, len(lists))
		}
	}
}
