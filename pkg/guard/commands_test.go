package guard

import (
	"bytes"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"
)

// logged is a log that is looked at while it is written.
type logged struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (l *logged) Write(b []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.Write(b)
}

func (l *logged) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.String()
}

func newLogged() (*logged, *slog.Logger) {
	l := &logged{}
	return l, slog.New(slog.NewTextHandler(l, nil))
}

// A warning's command knows what it is about, runs where the session was opened, and
// carries no mark by which it would be taken for a part of it.
func TestCommandEnvironment(t *testing.T) {
	t.Setenv("SESSIONBOX_COOKIE", "x")
	l, log := newLogged()
	c := newCommands(log)
	dir := t.TempDir()
	c.run(t.Context(), "a", `echo "$SESSIONBOX_WARN_NAME,$SESSIONBOX_COOKIE,$PWD" >out`, dir, []string{"SESSIONBOX_WARN_NAME=work"})
	c.wait()
	b, err := os.ReadFile(filepath.Join(dir, "out"))
	if want := "work,," + dir + "\n"; err != nil || string(b) != want {
		t.Errorf("it wrote %q, %v; want %q", b, err, want)
	}
	if l.String() != "" {
		t.Errorf("log: %s", l)
	}
}

// One that hangs is ended, with what it started, and one that fails is told of with
// what it said; neither holds up who asks.
func TestCommandThatHangsOrFails(t *testing.T) {
	l, log := newLogged()
	c := newCommands(log)
	c.limit = 200 * time.Millisecond
	began := time.Now()
	c.run(t.Context(), "a", "sleep 3600; true", "/", nil)
	c.run(t.Context(), "a", "true", "/", nil)
	c.run(t.Context(), "b", "echo oh dear; exit 3", "/nowhere", nil)
	if d := time.Since(began); d > 100*time.Millisecond {
		t.Errorf("who asks waited for %v", d)
	}
	c.wait()
	for _, want := range []string{"it was ended after 200ms", "the one before still runs", "exit status 3: oh dear"} {
		if !strings.Contains(l.String(), want) {
			t.Errorf("the log does not say %q: %s", want, l)
		}
	}
	if strings.Count(l.String(), "session=a") != 2 {
		t.Errorf("log: %s", l)
	}
	c.limit = time.Minute
	c.run(t.Context(), "a", "exit 4", "/", nil)
	c.wait()
	if !strings.Contains(l.String(), "exit status 4") {
		t.Errorf("after one that hung none is run: %s", l)
	}
}

// What a warning's command leaves behind holds nobody up.
func TestCommandThatLeavesSomethingBehind(t *testing.T) {
	l, log := newLogged()
	c := newCommands(log)
	began := time.Now()
	c.run(t.Context(), "a", "sleep 5 & exit 0", "/", nil)
	c.wait()
	if d := time.Since(began); d > 4*time.Second || l.String() != "" {
		t.Errorf("it took %v; log: %s", d, l)
	}
}

func TestCommandsAtOnce(t *testing.T) {
	l, log := newLogged()
	c := newCommands(log)
	c.limit = 300 * time.Millisecond
	for _, id := range []string{"a", "b", "c", "d", "e"} {
		c.run(t.Context(), id, "sleep 3600", "/", nil)
	}
	if !strings.Contains(l.String(), "too many run") {
		t.Errorf("log: %s", l)
	}
	c.wait()
}
