package guard

import (
	"bytes"
	"context"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"
)

// start runs a command in /, which must be let.
func (c *commands) start(t *testing.T, session, line string) {
	t.Helper()
	if why := c.book(session); why != "" {
		t.Errorf("%s: %s", session, why)
		return
	}
	c.run(t.Context(), session, line, "/", nil)
}

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
	c.book("a")
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
	c.start(t, "b", "echo oh dear; exit 3")
	c.wait()
	c.limit = 200 * time.Millisecond
	began := time.Now()
	c.start(t, "a", "sleep 3600; true")
	if why := c.book("a"); why != "the one before still runs" {
		t.Errorf("a second one of the session: %q", why)
	}
	if d := time.Since(began); d > 10*time.Second {
		t.Errorf("who asks waited for %v", d)
	}
	c.wait()
	for _, want := range []string{"it was ended after 200ms", "exit status 3: oh dear"} {
		if !strings.Contains(l.String(), want) {
			t.Errorf("the log does not say %q: %s", want, l)
		}
	}
	if strings.Count(l.String(), "session=a") != 1 {
		t.Errorf("log: %s", l)
	}
	c.limit = time.Minute
	c.start(t, "a", "exit 4")
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
	c.start(t, "a", "sleep 5 & exit 0")
	c.wait()
	if d := time.Since(began); d > 4*time.Second || l.String() != "" {
		t.Errorf("it took %v; log: %s", d, l)
	}
}

// Commands that hang take no turn from those of other sessions: these wait for a while, and
// are run. Of one session one runs at a time.
func TestCommandsThatHangSilenceNobody(t *testing.T) {
	l, log := newLogged()
	c := newCommands(log)
	c.short = 100 * time.Millisecond
	for i := range onWarnAtOnce {
		c.start(t, string(rune('a'+i)), "sleep 3600")
	}
	dir := t.TempDir()
	began := time.Now()
	c.start(t, "x", "echo >"+filepath.Join(dir, "x"))
	c.start(t, "y", "echo >"+filepath.Join(dir, "y"))
	if why := c.book("a"); why == "" {
		t.Error("two commands of one session at once")
	}
	c.wait()
	if d := time.Since(began); d > 20*time.Second {
		t.Errorf("it took %v", d)
	}
	for _, id := range []string{"x", "y"} {
		if !exists(filepath.Join(dir, id)) {
			t.Errorf("the command of %s was not run: %s", id, l)
		}
	}
	if !strings.Contains(l.String(), "it was ended after 100ms, as others wait") {
		t.Errorf("log: %s", l)
	}
	if c.running != 0 || len(c.booked) != 0 {
		t.Errorf("%d run, %v", c.running, c.booked)
	}
}

// How many wait is bounded.
func TestCommandsThatWait(t *testing.T) {
	_, log := newLogged()
	c := newCommands(log)
	ctx, end := context.WithCancel(t.Context())
	for i := range onWarnAtOnce + onWarnWait {
		id := fmt.Sprint(i)
		if why := c.book(id); why != "" {
			t.Fatalf("%s: %s", id, why)
		}
		c.run(ctx, id, "sleep 3600", "/", nil)
	}
	if why := c.book("one more"); why != "too many wait" {
		t.Errorf("one more is told %q", why)
	}
	end()
	c.wait()
	if why := c.book("later"); why != "" {
		t.Errorf("later: %s", why)
	}
}
