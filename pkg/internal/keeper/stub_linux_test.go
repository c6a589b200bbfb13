package keeper_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/creack/pty"
	"github.com/sessionbox/sessionbox/pkg/internal/keeper"
	"github.com/sessionbox/sessionbox/pkg/internal/proc"
	"github.com/sessionbox/sessionbox/pkg/store"
	"golang.org/x/sys/unix"
)

// The stub is macOS's, where launchd starts it; all else about it is the same here, where the
// tests start it: no environment, no terminal, limits and a umask of its own.
func (g *ground) stub() *exec.Cmd {
	g.t.Helper()
	if _, err := g.st.Update(g.t.Context(), g.rec.ID, func(r *store.Session) error { r.Lineage = "job"; return nil }); err != nil {
		g.t.Fatal(err)
	}
	args, err := keeper.StubArgs([]string{g.rec.ID}, g.st.Dirs())
	if err != nil {
		g.t.Fatal(err)
	}
	for _, a := range args {
		if strings.Contains(a, g.rec.Cookie) {
			g.t.Errorf("launchd is told a secret: %q", a)
		}
	}
	cmd := exec.Command("/bin/sh", append([]string{"-c", `umask 077; ulimit -Sn 256; exec "$0" "$@"`, os.Args[0]}, args...)...)
	cmd.Env, cmd.Dir, cmd.SysProcAttr = []string{"PATH=/usr/bin:/bin"}, "/", &syscall.SysProcAttr{Setsid: true}
	var said bytes.Buffer
	cmd.Stderr = &said
	if err := cmd.Start(); err != nil {
		g.t.Fatal(err)
	}
	g.t.Cleanup(func() {
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
		if said.Len() > 0 {
			g.t.Logf("the stub said %s", &said)
		}
	})
	ctx, cancel := context.WithTimeout(g.t.Context(), 20*time.Second)
	defer cancel()
	p, err := keeper.Hello(ctx, g.dir())
	if err != nil || p.PID != cmd.Process.Pid {
		g.t.Fatalf("the stub is %+v, %v; want pid %d", p, err, cmd.Process.Pid)
	}
	return cmd
}

func (g *ground) dir() string { return g.st.SessionDir(g.rec.ID) }

// job starts a command by way of the stub.
func (g *ground) job(cmd *exec.Cmd, tie *keeper.Tie) (*keeper.Command, error) {
	self, err := proc.Self()
	if err != nil {
		g.t.Fatal(err)
	}
	o := keeper.Order{Sessions: []string{g.rec.ID}, Leaf: g.leaf(), Task: 1, Dirs: g.st.Dirs(), UID: os.Geteuid(), Cookie: g.rec.Cookie, Supervisor: self, Job: g.dir()}
	return keeper.Start(g.t.Context(), os.Args[0], []string{"KEEPER_TEST_TOLD=" + g.told}, cmd, o, tie)
}

// What a command has of its caller it has in a job as well, and it is the stub's descendant.
func TestJobGiven(t *testing.T) {
	g := newGround(t)
	stub := g.stub()
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	dir := t.TempDir()
	for _, d := range []string{dir, filepath.Join(dir, "it is removed")} {
		if err := os.MkdirAll(d, 0o755); err != nil {
			t.Fatal(err)
		}
		var out bytes.Buffer
		// The shell that is our child has limits and a umask that neither we nor the stub have.
		cmd := exec.Command("sh", "-c", `cat; echo third >&3; echo "$GIVEN,$KEEPER_TEST_TOLD,$SESSIONBOX_META,$SESSIONBOX_AROUND"; pwd -P; umask; ulimit -Sn; ulimit -c; ps -o sid=,ppid= $$; exit 9`)
		cmd.Stdin, cmd.Stdout, cmd.ExtraFiles, cmd.Env, cmd.Dir = strings.NewReader("first\n"), &out, []*os.File{w}, []string{"GIVEN=yes", "PATH=" + os.Getenv("PATH")}, d
		var c *keeper.Command
		under(t, func() { c, err = g.job(cmd, nil) })
		if err != nil {
			t.Fatal(err)
		}
		ws, told := c.Status()
		if err := cmd.Wait(); cmd.ProcessState.ExitCode() != 9 || !told || ws.ExitStatus() != 9 {
			t.Errorf("it ended with %v, told %v: %v; want 9", ws, told, err)
		}
		lines := strings.Split(out.String(), "\n")
		if len(lines) != 8 || strings.Join(lines[:6], "|") != "first|yes,,,|"+d+"|0007|333|1" {
			t.Fatalf("%q", lines)
		}
		third := make([]byte, 6)
		if _, err := io.ReadFull(r, third); err != nil || string(third) != "third\n" {
			t.Errorf("descriptor 3: %q, %v", third, err)
		}
		var sid, ppid int
		if _, err := fmt.Sscan(lines[6], &sid, &ppid); err != nil || sid != c.PID || ppid == cmd.Process.Pid {
			t.Errorf("session %d, parent %d; want %d of its own, and another parent than the front (%d): %v", sid, ppid, c.PID, cmd.Process.Pid, err)
		}
	}
	w.Close()
	g.unkept()
	env, err := proc.Env(stub.Process.Pid, keeper.EnvMeta)
	if err != nil || !strings.Contains(env[keeper.EnvMeta], g.rec.ID) {
		t.Errorf("the stub does not carry the record: %q, %v", env, err)
	}
}

// under calls fn with a umask and limits that only we have.
func under(t *testing.T, fn func()) {
	t.Helper()
	old := syscall.Umask(7)
	defer syscall.Umask(old)
	for what, cur := range map[int]uint64{unix.RLIMIT_NOFILE: 333, unix.RLIMIT_CORE: 512} {
		var before unix.Rlimit
		if err := unix.Getrlimit(what, &before); err != nil {
			t.Fatal(err)
		}
		if err := unix.Setrlimit(what, &unix.Rlimit{Cur: cur, Max: before.Max}); err != nil {
			t.Fatal(err)
		}
		defer func() { _ = unix.Setrlimit(what, &before) }()
	}
	fn()
}

// The keeper is the stub's child while the command runs, and everything else of the contract holds:
// errors are the command's, signals arrive, and the caller's death ends what was tied to it.
func TestJobLife(t *testing.T) {
	g := newGround(t)
	stub := g.stub()
	if _, err := g.job(&exec.Cmd{Path: "/no/such/program", Args: []string{"x"}}, nil); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("a program that is not there: %v", err)
	}
	cmd := exec.Command("sh", "-c", "trap 'exit 3' TERM; echo ready; while :; do sleep 0.05; done")
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	c, err := g.job(cmd, nil)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := io.ReadFull(out, make([]byte, 6)); err != nil {
		t.Fatal(err)
	}
	st, err := proc.ReadStat(c.PID)
	if err != nil {
		t.Fatal(err)
	}
	if ks, err := proc.ReadStat(st.PPID); err != nil || ks.PPID != stub.Process.Pid {
		t.Errorf("the keeper's parent is %d, %v; want the stub %d", ks.PPID, err, stub.Process.Pid)
	}
	if err := cmd.Process.Signal(syscall.SIGTERM); err != nil { // to the front
		t.Fatal(err)
	}
	if ws, told := c.Status(); !told || ws.ExitStatus() != 3 {
		t.Errorf("after SIGTERM: %v, told %v; want exit 3", ws, told)
	}
	_ = cmd.Wait()

	tie, err := keeper.NewTie()
	if err != nil {
		t.Fatal(err)
	}
	cmd = exec.Command("sleep", "600")
	if c, err = g.job(cmd, tie); err != nil {
		t.Fatal(err)
	}
	tie.Drop() // as our death does
	if ws, told := c.Status(); !told || ws.Signal() != syscall.SIGKILL {
		t.Errorf("after the caller's death: %v, told %v", ws, told)
	}
	_ = cmd.Wait()
	g.unkept()
}

// With the stub killed what runs goes on and is told of; nothing new starts, and that is said.
func TestJobStubKilled(t *testing.T) {
	g := newGround(t)
	stub := g.stub()
	cmd := exec.Command("sh", "-c", "read x; exit 5")
	in, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	c, err := g.job(cmd, nil)
	if err != nil {
		t.Fatal(err)
	}
	if err := stub.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	_ = stub.Wait()
	if _, err := g.job(exec.Command("true"), nil); err == nil || !strings.Contains(err.Error(), "the job of the session does not start anything") {
		t.Errorf("a start without a stub: %v", err)
	}
	in.Close()
	if ws, told := c.Status(); !told || ws.ExitStatus() != 5 {
		t.Errorf("%v, told %v; want exit 5", ws, told)
	}
	_ = cmd.Wait()
	g.unkept()
}

// A stub starts keepers of its own session only.
func TestJobOthers(t *testing.T) {
	g := newGround(t)
	g.stub()
	other := store.NewID()
	self, err := proc.Self()
	if err != nil {
		t.Fatal(err)
	}
	o := keeper.Order{Sessions: []string{other}, Leaf: "task-1", Dirs: g.st.Dirs(), UID: os.Geteuid(), Supervisor: self, Job: g.dir()}
	if _, err := keeper.Start(t.Context(), os.Args[0], nil, exec.Command("true"), o, nil); err == nil || !strings.Contains(err.Error(), "not a keeper of session "+g.rec.ID) {
		t.Errorf("a keeper of another session: %v", err)
	}
}

// jobCaller is a caller in front of a terminal.
func jobCaller(state, id, script string) int {
	fail := func(err error) int {
		fmt.Fprintln(os.Stderr, err)
		return 99
	}
	st, err := store.Open(store.Dirs{State: state, History: state + ".history", UID: os.Geteuid(), Given: true})
	if err != nil {
		return fail(err)
	}
	self, err := proc.Self()
	if err != nil {
		return fail(err)
	}
	o := keeper.Order{Sessions: []string{id}, Leaf: "task-1", Task: 1, Dirs: st.Dirs(), UID: os.Geteuid(), Supervisor: self, Job: st.SessionDir(id)}
	cmd := exec.Command("sh", "-c", script)
	cmd.Stdin, cmd.Stdout, cmd.Stderr = os.Stdin, os.Stdout, os.Stderr
	c, err := keeper.Start(context.Background(), os.Args[0], os.Environ(), cmd, o, nil)
	if err != nil {
		return fail(err)
	}
	_ = cmd.Wait() // until all is shown
	ws, told := c.Status()
	if !told {
		return 98
	}
	if ws.Signaled() {
		return 128 + int(ws.Signal())
	}
	return ws.ExitStatus()
}

// Before a terminal the command has one of its own, of the same size, whose keys are the user's, and
// the user's own one is afterwards as it was.
func TestJobTerminal(t *testing.T) {
	g := newGround(t)
	g.stub()
	script := `trap 'echo "now $(stty size)"' WINCH; stty size; tty; ps -o tty=,tpgid=,pgid= $$; echo told >/dev/tty
		read line; echo "read $line"; while :; do sleep 0.02; test -e "$STOP" && break; done; trap 'echo int; exit 4' INT; echo set; while :; do sleep 0.02; done`
	cmd := exec.Command(os.Args[0], "job-caller", g.st.Dirs().State, g.rec.ID, script)
	stop := filepath.Join(t.TempDir(), "stop")
	cmd.Env = append(os.Environ(), "STOP="+stop)
	tty, slave, err := pty.Open()
	if err != nil {
		t.Fatal(err)
	}
	defer tty.Close()
	if err := pty.Setsize(tty, &pty.Winsize{Rows: 31, Cols: 97}); err != nil {
		t.Fatal(err)
	}
	before, err := unix.IoctlGetTermios(int(tty.Fd()), unix.TCGETS)
	if err != nil {
		t.Fatal(err)
	}
	cmd.Stdin, cmd.Stdout, cmd.Stderr = slave, slave, slave
	cmd.SysProcAttr = &unix.SysProcAttr{Setsid: true, Setctty: true}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	slave.Close()
	shown := make(chan string, 1000)
	go func() {
		b := make([]byte, 4096)
		for {
			n, err := tty.Read(b)
			if err != nil {
				close(shown)
				return
			}
			shown <- string(b[:n])
		}
	}()
	var screen strings.Builder
	see := func(text string) {
		t.Helper()
		timeout := time.After(20 * time.Second)
		for !strings.Contains(screen.String(), text) {
			select {
			case s, ok := <-shown:
				if !ok {
					t.Fatalf("no %q on the screen:\n%s", text, screen.String())
				}
				screen.WriteString(s)
			case <-timeout:
				t.Fatalf("no %q on the screen:\n%s", text, screen.String())
			}
		}
	}
	see("31 97\r\n")
	see("told\r\n")
	_, _ = io.WriteString(tty, "hello\r")
	see("read hello\r\n")
	if n := strings.Count(screen.String(), "hello"); n != 2 {
		t.Errorf("%d times on the screen, want the echo and the answer:\n%s", n, screen.String())
	}
	if err := pty.Setsize(tty, &pty.Winsize{Rows: 41, Cols: 120}); err != nil {
		t.Fatal(err)
	}
	see("now 41 120\r\n")
	if err := os.WriteFile(stop, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	see("set\r\n")
	_, _ = io.WriteString(tty, "\x03")
	see("int\r\n")
	_ = cmd.Wait()
	if code := cmd.ProcessState.ExitCode(); code != 4 {
		t.Errorf("exit code %d, want 4", code)
	}
	after, err := unix.IoctlGetTermios(int(tty.Fd()), unix.TCGETS)
	if err != nil || *after != *before {
		t.Errorf("the terminal is not as it was: %+v, then %+v, %v", before, after, err)
	}
	name := ""
	for line := range strings.SplitSeq(screen.String(), "\r\n") {
		if strings.HasPrefix(line, "/dev/pts/") {
			name = line
		}
	}
	if n, err := strconv.Atoi(strings.TrimPrefix(name, "/dev/pts/")); err != nil || fmt.Sprintf("/dev/pts/%d", n) == ptsName(t, tty) {
		t.Errorf("the command is on %q, want a terminal that is not the caller's", name)
	}
	g.unkept()
}

func ptsName(t *testing.T, master *os.File) string {
	t.Helper()
	n, err := unix.IoctlGetInt(int(master.Fd()), unix.TIOCGPTN)
	if err != nil {
		t.Fatal(err)
	}
	return fmt.Sprintf("/dev/pts/%d", n)
}

// A directory that is too deep for a socket is told as such, and nothing is started.
func TestJobPath(t *testing.T) {
	if _, err := keeper.Socket("/" + strings.Repeat("d", 101)); !errors.Is(err, keeper.ErrPath) {
		t.Errorf("104 bytes: %v", err)
	}
	if path, err := keeper.Socket("/" + strings.Repeat("d", 100)); err != nil || len(path) != 103 {
		t.Errorf("103 bytes: %q, %v", path, err)
	}
}
