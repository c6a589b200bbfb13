package park_test

import (
	"bytes"
	"context"
	"errors"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"syscall"
	"testing"
	"time"

	"github.com/sessionbox/sessionbox/pkg/internal/park"
)

// TestMain lets the test binary be the stub, and one that does not answer.
func TestMain(m *testing.M) {
	if len(os.Args) > 1 && os.Args[1] == park.Arg {
		if os.Getenv("PARK_TEST_DEAF") != "" {
			time.Sleep(time.Hour)
		}
		os.Exit(park.Main(os.Args[2:]))
	}
	os.Exit(m.Run())
}

func anywhere(int) error { return nil }

func within(t *testing.T, d time.Duration) context.Context {
	ctx, cancel := context.WithTimeout(t.Context(), d)
	t.Cleanup(cancel)
	return ctx
}

func TestStart(t *testing.T) {
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	io.WriteString(w, "world")
	w.Close()
	cmd := exec.Command("/bin/sh", "-c", "cat; cat <&3")
	cmd.Stdin = bytes.NewReader([]byte("hello "))
	cmd.ExtraFiles = []*os.File{r}
	var out bytes.Buffer
	cmd.Stdout = &out
	placed := 0
	err = park.Start(within(t, time.Minute), cmd, os.Args[0], func(pid int) error { placed = pid; return nil })
	if err != nil || placed != cmd.Process.Pid || len(cmd.ExtraFiles) != 1 || cmd.Path != "/bin/sh" {
		t.Fatalf("%v, placed %d, %+v", err, placed, cmd)
	}
	if err := cmd.Wait(); err != nil || out.String() != "hello world" {
		t.Errorf("%v, %q", err, out.String())
	}
}

// What did not start can be started again, and no stub is left.
func TestStartFails(t *testing.T) {
	cmd := &exec.Cmd{Path: "/no/such/program", Args: []string{"x"}}
	if err := park.Start(within(t, time.Minute), cmd, os.Args[0], anywhere); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("no program: %v", err)
	}
	cmd.Path, cmd.Args = "/bin/sh", []string{"sh", "-c", "exit 7"}
	if err := park.Start(within(t, time.Minute), cmd, "/no/such/helper", anywhere); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("no helper: %v", err)
	}
	no, pid := errors.New("no"), 0
	err := park.Start(within(t, time.Minute), cmd, os.Args[0], func(p int) error { pid = p; return no })
	if !errors.Is(err, no) {
		t.Errorf("not placed: %v", err)
	}
	if p, err := os.FindProcess(pid); err == nil && p.Signal(syscall.Signal(0)) == nil {
		t.Error("the stub is left")
	}
	cmd.Env = append(os.Environ(), "PARK_TEST_DEAF=1")
	if err := park.Start(within(t, 100*time.Millisecond), cmd, os.Args[0], anywhere); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("a stub that does not answer: %v", err)
	}
	cmd.Env = nil
	// Time that runs out while it is placed: it is not let go.
	ctx, cancel := context.WithCancel(t.Context())
	err = park.Start(ctx, cmd, os.Args[0], func(int) error { cancel(); return nil })
	if !errors.Is(err, context.Canceled) {
		t.Errorf("cancelled: %v", err)
	}
	if err := park.Start(within(t, time.Minute), cmd, os.Args[0], anywhere); err != nil {
		t.Fatal(err)
	}
	if cmd.Wait(); cmd.ProcessState.ExitCode() != 7 {
		t.Errorf("exit %v", cmd.ProcessState)
	}
}

// A command whose input nobody ends does not keep a failed start from returning.
func TestStartFailsWithInput(t *testing.T) {
	held, hold := io.Pipe()
	defer hold.Close()
	cmd := exec.Command("/bin/true")
	cmd.Stdin = held
	no := errors.New("no")
	begin := time.Now()
	if err := park.Start(t.Context(), cmd, os.Args[0], func(int) error { return no }); !errors.Is(err, no) {
		t.Error(err)
	}
	if took := time.Since(begin); took > 10*time.Second {
		t.Errorf("it took %v", took)
	}
	if err := cmd.Start(); err == nil {
		t.Error("a command whose input may be spent is started again")
	}
}
