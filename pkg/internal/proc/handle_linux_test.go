package proc

import (
	"context"
	"errors"
	"os"
	"os/exec"
	"runtime"
	"strconv"
	"sync"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

func sleeper(t *testing.T, env ...string) (*exec.Cmd, ID) {
	t.Helper()
	cmd := exec.Command("sleep", "600")
	cmd.Env = append(os.Environ(), env...)
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { cmd.Process.Kill(); cmd.Wait() })
	id, err := Lookup(cmd.Process.Pid)
	if err != nil {
		t.Fatal(err)
	}
	return cmd, id
}

func TestOpenProvesIdentity(t *testing.T) {
	_, id := sleeper(t)
	if h, err := Open(id); err != nil {
		t.Errorf("Open = %v", err)
	} else {
		h.Close()
	}
	if !aliveNow(id) {
		t.Error("a living process is not alive")
	}
	reused := id
	reused.Start--
	if _, err := Open(reused); !errors.Is(err, ErrReused) {
		t.Errorf("another start time: %v, want ErrReused", err)
	}
	otherBoot := id
	otherBoot.Boot = "00000000-0000-0000-0000-000000000000"
	if _, err := Open(otherBoot); !errors.Is(err, ErrGone) {
		t.Errorf("another boot: %v, want ErrGone", err)
	}
	for _, pid := range []int{-1, 0, 1} {
		if _, err := Open(ID{PID: pid, Start: 1}); !errors.Is(err, ErrForbidden) {
			t.Errorf("Open of pid %d: %v, want ErrForbidden", pid, err)
		}
		if _, err := OpenPID(pid); !errors.Is(err, ErrForbidden) {
			t.Errorf("OpenPID of %d: %v, want ErrForbidden", pid, err)
		}
	}
}

func TestSignalAndWait(t *testing.T) {
	cmd, id := sleeper(t)
	h, err := Open(id)
	if err != nil {
		t.Fatal(err)
	}
	defer h.Close()
	short, cancel := context.WithTimeout(context.Background(), 10*time.Millisecond)
	defer cancel()
	if err := h.Wait(short); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("Wait for a living process: %v, want the deadline's error", err)
	}
	if err := h.Signal(unix.SIGKILL); err != nil {
		t.Fatal(err)
	}
	long, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	if err := h.Wait(long); err != nil {
		t.Errorf("Wait = %v", err)
	}
	if aliveNow(id) {
		t.Error("a zombie is called alive")
	}
	cmd.Wait()
	if err := h.Signal(unix.SIGKILL); !errors.Is(err, ErrGone) {
		t.Errorf("signal after the end: %v, want ErrGone", err)
	}
	if _, err := Open(id); !errors.Is(err, ErrGone) {
		t.Errorf("Open after the end: %v, want ErrGone", err)
	}
}

func TestEnv(t *testing.T) {
	_, id := sleeper(t, "SBX_ONE=1=2", "SBX_TWO=")
	env, err := Env(id.PID, "SBX_ONE", "SBX_TWO", "SBX_THREE")
	if err != nil || len(env) != 2 || env["SBX_ONE"] != "1=2" || env["SBX_TWO"] != "" {
		t.Errorf("Env = %q, %v", env, err)
	}
	if _, err := Env(1<<22-1, "X"); !errors.Is(err, ErrGone) {
		t.Errorf("Env of nobody: %v, want ErrGone", err)
	}
}

// TestMain runs on the leading thread, which init locks: what is to end that
// thread must happen here.
func TestMain(m *testing.M) {
	if os.Getenv("SBX_HEADLESS") == "1" {
		go func() {
			if code, err := strconv.Atoi(os.Getenv("SBX_HEADLESS_EXIT")); err == nil {
				time.Sleep(200 * time.Millisecond)
				os.Exit(code)
			}
			time.Sleep(time.Minute)
			os.Exit(0)
		}()
		unix.RawSyscall(unix.SYS_EXIT, 0, 0, 0)
	}
	os.Exit(m.Run())
}

func init() { runtime.LockOSThread() }

// A process whose leading thread has ended shows no environment of its own; a
// living thread's is read then.
func TestEnvWithoutLeader(t *testing.T) {
	cmd := exec.Command(os.Args[0])
	cmd.Env = append(os.Environ(), "SBX_HEADLESS=1")
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	defer func() { cmd.Process.Kill(); cmd.Wait() }()
	for end := time.Now().Add(10 * time.Second); ; time.Sleep(time.Millisecond) {
		if s, err := ReadStat(cmd.Process.Pid); err == nil && s.State == 'Z' {
			break
		}
		if time.Now().After(end) {
			t.Fatal("the leading thread did not end")
		}
	}
	env, err := Env(cmd.Process.Pid, "SBX_HEADLESS")
	if err != nil || env["SBX_HEADLESS"] != "1" {
		t.Errorf("Env = %q, %v; want what the living thread shows", env, err)
	}
}

func aliveNow(id ID) bool { return FateOf(id) == Alive }

// What is said of a pid depends on the namespace that it is of: the same number means
// another process in another one.
func TestFateElsewhere(t *testing.T) {
	self, err := Self()
	if err != nil {
		t.Fatal(err)
	}
	if self.NS == 0 {
		t.Fatal("our own namespace was not noted")
	}
	if got := FateOf(self); got != Alive {
		t.Errorf("of ourselves: %v, want Alive", got)
	}
	other := self
	other.NS++
	if got := FateOf(other); got != Unknown {
		t.Errorf("of our pid in another namespace: %v, want Unknown", got)
	}
	if _, err := Open(other); !errors.Is(err, ErrElsewhere) {
		t.Errorf("Open of it: %v, want ErrElsewhere", err)
	}
	other.NS = 0
	other.Start++
	if got := FateOf(other); got != Gone {
		t.Errorf("of our pid with another start time: %v, want Gone", got)
	}
}

// TestFateUnderSignals: who lives is alive also while we are sent signals all the time,
// as Go's runtime does to preempt itself. A poll that was cut short once made an owner
// unknown, and a task lost.
func TestFateUnderSignals(t *testing.T) {
	id, err := Lookup(os.Getppid())
	if err != nil {
		t.Fatal(err)
	}
	stop := make(chan struct{})
	var wg sync.WaitGroup
	defer wg.Wait()
	defer close(stop)
	for range 2 {
		wg.Go(func() {
			for {
				select {
				case <-stop:
					return
				default:
					unix.Kill(os.Getpid(), unix.SIGURG)
				}
			}
		})
	}
	for n := range 20_000 {
		if f := FateOf(id); f != Alive {
			t.Fatalf("look %d: the fate of our parent is %d", n, f)
		}
	}
}
