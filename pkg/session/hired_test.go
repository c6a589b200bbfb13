package session

import (
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
		b, err := json.Marshal(&called[i])
		if err != nil {
			t.Fatal(err)
		}
		path := filepath.Join(string(dir), "engines", fmt.Sprintf("%d.json", i))
		if err := os.WriteFile(path, b, 0o600); err != nil {
			t.Fatal(err)
		}
		if err := os.Chtimes(path, time.Unix(1, 0), time.Unix(1, 0)); err != nil { // nothing is in flight
			t.Fatal(err)
		}
	}
	return c
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
