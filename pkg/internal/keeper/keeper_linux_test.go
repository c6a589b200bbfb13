package keeper_test

import (
	"bytes"
	"errors"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/sessionbox/sessionbox/pkg/internal/keeper"
	"github.com/sessionbox/sessionbox/pkg/internal/park"
	"github.com/sessionbox/sessionbox/pkg/internal/proc"
	"github.com/sessionbox/sessionbox/pkg/store"
)

// TestMain lets the test binary be front and keeper; what a keeper tells of a task goes to a
// file that the environment names.
func TestMain(m *testing.M) {
	if len(os.Args) > 1 && os.Args[1] == keeper.Arg {
		told := func(what string) {
			if path := os.Getenv("KEEPER_TEST_TOLD"); path != "" {
				os.WriteFile(path, []byte(what), 0o600)
			}
		}
		os.Exit(keeper.Main(os.Args[2:], keeper.Hooks{
			Abandoned: func(*store.Store, *keeper.Order) { told("abandoned") },
			Ended:     func(*store.Store, *keeper.Order, syscall.WaitStatus) { told("ended") },
		}))
	}
	if len(os.Args) == 5 && os.Args[1] == "job-caller" {
		os.Exit(jobCaller(os.Args[2], os.Args[3], os.Args[4]))
	}
	if len(os.Args) > 1 && os.Args[1] == park.Arg {
		os.Exit(park.Main(os.Args[2:]))
	}
	os.Exit(m.Run())
}

// ground is a session with records, and no box.
type ground struct {
	t    *testing.T
	st   *store.Store
	rec  store.Session
	told string
	n    atomic.Int32
}

func newGround(t *testing.T) *ground {
	t.Helper()
	dir := t.TempDir()
	st, err := store.Open(store.Dirs{State: filepath.Join(dir, "state"), History: filepath.Join(dir, "history"), UID: os.Geteuid(), Given: true})
	if err != nil {
		t.Fatal(err)
	}
	boot, err := proc.BootID()
	if err != nil {
		t.Fatal(err)
	}
	g := &ground{t: t, st: st, told: filepath.Join(dir, "told"), rec: store.Session{Schema: store.Schema, ID: store.NewID(), State: store.StateOpening, Created: time.Now(),
		Boot: boot, UID: os.Geteuid(), Kind: store.KindLineage, Cookie: store.NewCookie()}}
	if err := st.Claim(t.Context(), g.rec); err != nil {
		t.Fatal(err)
	}
	return g
}

// start starts a command below a keeper.
func (g *ground) start(cmd *exec.Cmd, tie *keeper.Tie) (*keeper.Command, error) {
	g.t.Helper()
	self, err := proc.Self()
	if err != nil {
		g.t.Fatal(err)
	}
	o := keeper.Order{Sessions: []string{g.rec.ID}, Leaf: g.leaf(), Task: 1, Dirs: g.st.Dirs(), UID: os.Geteuid(), Cookie: g.rec.Cookie, Setsid: true, Supervisor: self}
	return keeper.Start(g.t.Context(), os.Args[0], []string{"KEEPER_TEST_TOLD=" + g.told}, cmd, o, tie)
}

// leaf is another one for each command.
func (g *ground) leaf() string { return "task-" + string('0'+g.n.Add(1)) }

func soon(t *testing.T, what string, cond func() bool) {
	t.Helper()
	for end := time.Now().Add(20 * time.Second); !cond(); time.Sleep(5 * time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("%s: not within 20 s", what)
		}
	}
}

// unkept waits until no keeper has a leaf.
func (g *ground) unkept() {
	g.t.Helper()
	soon(g.t, "end of the keepers", func() bool { parts, err := g.st.Lineage(g.rec.ID); return err == nil && len(parts) == 0 })
}

// The caller gets what the command did, byte by byte and bit by bit.
func TestStatus(t *testing.T) {
	g := newGround(t)
	for _, tt := range []struct {
		script string
		exit   int
		sig    syscall.Signal
	}{{"exit 0", 0, 0}, {"exit 77", 77, 0}, {"kill -SEGV $$", -1, syscall.SIGSEGV}, {"kill -KILL $$", -1, syscall.SIGKILL}} {
		cmd := exec.Command("sh", "-c", tt.script)
		c, err := g.start(cmd, nil)
		if err != nil {
			t.Fatal(err)
		}
		ws, ok := c.Status()
		if !ok || ws.ExitStatus() != tt.exit || tt.sig != 0 && ws.Signal() != tt.sig {
			t.Errorf("%s: %v, told %v", tt.script, ws, ok)
		}
		cmd.Wait()
	}
	g.unkept()
	for path, want := range map[string]error{"/no/such/program": fs.ErrNotExist, "/etc/passwd": fs.ErrPermission} {
		_, err := g.start(&exec.Cmd{Path: path, Args: []string{path}}, nil)
		var pe *fs.PathError
		if !errors.Is(err, want) || !errors.As(err, &pe) || pe.Op != "fork/exec" {
			t.Errorf("%s: %v, want %v as exec.Cmd.Start says it", path, err, want)
		}
	}
	g.unkept()
}

// The command has the files and the environment that it was given, and none of the keeper's.
func TestGiven(t *testing.T) {
	g := newGround(t)
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	var out bytes.Buffer
	cmd := exec.Command("sh", "-c", `cat; echo third >&3; echo "$GIVEN,$KEEPER_TEST_TOLD"; pwd; ps -o sid= $$`)
	cmd.Stdin, cmd.Stdout, cmd.ExtraFiles, cmd.Env, cmd.Dir = strings.NewReader("first\n"), &out, []*os.File{w}, []string{"GIVEN=yes", "PATH=" + os.Getenv("PATH")}, "/tmp"
	c, err := g.start(cmd, nil)
	w.Close()
	if err != nil {
		t.Fatal(err)
	}
	third, err := io.ReadAll(r) // it ends: neither front nor keeper holds the other end
	if err != nil || string(third) != "third\n" {
		t.Errorf("descriptor 3 said %q, %v", third, err)
	}
	c.Status()
	if err := cmd.Wait(); err != nil {
		t.Fatal(err)
	}
	got := strings.Fields(out.String())
	if want := []string{"first", "yes,", "/tmp"}; len(got) != len(want)+1 || strings.Join(got[:len(want)], " ") != strings.Join(want, " ") {
		t.Errorf("got %q, want %q and a session of its own", got, want)
	}
}

// What is left has its keeper until it ends.
func TestLeft(t *testing.T) {
	g := newGround(t)
	cmd := exec.Command("sh", "-c", `setsid sh -c 'echo $$ $PPID; exec sleep 600' & sleep 0.2`)
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	c, err := g.start(cmd, nil)
	if err != nil {
		t.Fatal(err)
	}
	buf := make([]byte, 64)
	n, _ := out.Read(buf)
	pid := 0
	for _, b := range bytes.Fields(buf[:n])[0] {
		pid = 10*pid + int(b-'0')
	}
	id, err := proc.Lookup(pid)
	if err != nil {
		t.Fatal(err)
	}
	if ws, ok := c.Status(); !ok || ws != 0 {
		t.Errorf("status %v, %v", ws, ok)
	}
	cmd.Wait()
	st, err := proc.ReadStat(pid)
	if err != nil {
		t.Fatal(err)
	}
	if ids, ok := keeper.Session(proc.Args(st.PPID)); !ok || len(ids) != 1 || ids[0] != g.rec.ID {
		t.Errorf("the parent of what is left is %q", proc.Args(st.PPID))
	}
	if parts, err := g.st.Lineage(g.rec.ID); err != nil || !bytes.Contains(parts["task-1"], []byte(`"reapers"`)) {
		t.Errorf("recorded: %q, %v", parts, err)
	}
	h, err := proc.Open(id)
	if err != nil {
		t.Fatal(err)
	}
	defer h.Close()
	if err := h.Signal(syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	g.unkept()
}

// A caller that lets go of the tie without a word is dead: all of the command ends. One that
// says goodbye is not.
func TestTied(t *testing.T) {
	g := newGround(t)
	for _, goodbye := range []bool{false, true} {
		tie, err := keeper.NewTie()
		if err != nil {
			t.Fatal(err)
		}
		cmd := exec.Command("sh", "-c", "setsid sleep 600 & exec sleep 0.5")
		c, err := g.start(cmd, tie)
		if err != nil {
			t.Fatal(err)
		}
		began := time.Now()
		if goodbye {
			tie.Release()
		} else {
			tie.Drop()
		}
		ws, ok := c.Status()
		cmd.Wait()
		if killed := ws.Signaled(); !ok || killed == goodbye {
			t.Errorf("goodbye %v: %v after %v", goodbye, ws, time.Since(began))
		}
		if !goodbye {
			g.unkept()
			if told, err := os.ReadFile(g.told); err != nil || string(told) != "abandoned" {
				t.Errorf("told %q, %v", told, err)
			}
			continue
		}
		parts, err := g.st.Lineage(g.rec.ID)
		if err != nil || len(parts) != 1 {
			t.Fatalf("after the goodbye: %q, %v", parts, err)
		}
	}
	endMarked(t)
	g.unkept()
}

// endMarked ends our sleepers: the children of keepers that descend from this test.
func endMarked(t *testing.T) {
	t.Helper()
	pids, err := proc.PIDs()
	if err != nil {
		t.Fatal(err)
	}
	for _, pid := range pids {
		argv := proc.Args(pid)
		st, err := proc.ReadStat(pid)
		if err != nil || len(argv) != 2 || argv[0] != "sleep" || argv[1] != "600" {
			continue
		}
		if _, ok := keeper.Session(proc.Args(st.PPID)); !ok || !proc.SameProgram(st.PPID) {
			continue
		}
		if h, err := proc.Open(proc.ID{PID: pid, Start: st.Start}); err == nil {
			h.Signal(syscall.SIGKILL)
			h.Close()
		}
	}
}

func TestSession(t *testing.T) {
	id := store.NewID()
	for _, tt := range []struct {
		argv []string
		ok   bool
	}{
		{[]string{"sessionbox", keeper.Arg, "keeper", id + "-" + id, "task-1", "3"}, true},
		{[]string{"sessionbox", keeper.Arg, "keeper", "../../etc", "task-1", "3"}, false},
		{[]string{"sessionbox", keeper.Arg, "other", id, "task-1", "3"}, false},
		{[]string{"sessionbox", "ls"}, false},
		{nil, false},
	} {
		if ids, ok := keeper.Session(tt.argv); ok != tt.ok || ok && len(ids) != 2 {
			t.Errorf("%q: %q, %v", tt.argv, ids, ok)
		}
	}
}
