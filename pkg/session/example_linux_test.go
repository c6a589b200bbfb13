package session_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log"
	"os"
	"os/exec"
	"syscall"
	"time"

	"github.com/sessionbox/sessionbox/pkg/memlimit"
	"github.com/sessionbox/sessionbox/pkg/session"
	"github.com/sessionbox/sessionbox/pkg/store"
)

// manager is how the examples get theirs: this test program is its own helper,
// and the box is the one that needs no systemd.
func manager() *session.Manager {
	m, err := session.New(session.Config{Helper: os.Args[0]})
	if err != nil {
		log.Fatal(err)
	}
	return m
}

func open(m *session.Manager, name string) *session.Session {
	s, err := m.Open(context.Background(), session.OpenOptions{Name: name, Kind: store.KindCgroup})
	if err != nil {
		log.Fatal(err)
	}
	return s
}

// The main job: whatever a command leaves behind ends with its session.
func Example() {
	ctx := context.Background()
	m := manager()
	s := open(m, "work")
	defer s.Release()

	t, err := s.Start(ctx, exec.Command("sh", "-c", "setsid sleep 600 & exit 0"), session.StartOptions{})
	if err != nil {
		log.Fatal(err)
	}
	r, err := t.Wait()
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println(r.State, "leaving", r.Leftovers)

	receipt, err := m.Close(ctx, "work", session.CloseOptions{})
	if err != nil {
		log.Fatal(err)
	}
	for _, p := range receipt.Processes {
		fmt.Println("a process of task", p.Task, p.Fate)
	}
	// Output:
	// exited leaving 1
	// a process of task 1 ended
}

func ExampleManager_Open() {
	ctx := context.Background()
	m := manager()
	s, err := m.Open(ctx, session.OpenOptions{Name: "named", Kind: store.KindCgroup, Labels: map[string]string{"agent": "a1"}})
	if err != nil {
		log.Fatal(err)
	}
	defer s.Release()
	_, err = m.Open(ctx, session.OpenOptions{Name: "named"})
	fmt.Println("a second time:", errors.Is(err, session.ErrHeld))
	m.Close(ctx, s.ID(), session.CloseOptions{Now: true})
	// Output: a second time: true
}

func ExampleSession_Start() {
	ctx := context.Background()
	m := manager()
	s := open(m, "start")
	defer m.Close(ctx, s.ID(), session.CloseOptions{Now: true})
	cmd := exec.Command("sh", "-c", "echo in $SESSIONBOX_SESSION; exit 3")
	cmd.Stdout = os.Stdout
	t, err := s.Start(ctx, cmd, session.StartOptions{Tie: true})
	if err != nil {
		log.Fatal(err)
	}
	r, err := t.Wait()
	fmt.Println(r.State, r.Exit, err)
	// Output:
	// in start
	// failed 3 <nil>
}

// A command that is out of time ends with everything it started.
func ExampleSession_Start_timeout() {
	ctx := context.Background()
	m := manager()
	s := open(m, "timeout")
	defer m.Close(ctx, s.ID(), session.CloseOptions{Now: true})
	t, err := s.Start(ctx, exec.Command("sh", "-c", "setsid sleep 600 & sleep 600"),
		session.StartOptions{Timeout: 50 * time.Millisecond, KillAfter: 5 * time.Second})
	if err != nil {
		log.Fatal(err)
	}
	r, err := t.Wait()
	fmt.Println(r.State, err)
	fmt.Println("empty:", s.Wait(ctx, t.N(), session.WaitEmpty))
	// Output:
	// timed_out <nil>
	// empty: <nil>
}

func ExampleSession_StartDetached() {
	ctx := context.Background()
	m := manager()
	s := open(m, "detached")
	defer m.Close(ctx, s.ID(), session.CloseOptions{Now: true})
	_, n, err := s.StartDetached(ctx, exec.Command("sleep", "0.05"), session.StartOptions{})
	if err != nil {
		log.Fatal(err)
	}
	if err := s.Wait(ctx, n, session.WaitExit); err != nil {
		log.Fatal(err)
	}
	t, err := s.TaskInfo(ctx, n)
	fmt.Println("task", n, t.State, err)
	// Output: task 1 exited <nil>
}

// What a command leaves in the background goes on writing to the log, which outlives
// the session.
func ExampleManager_Logs() {
	ctx := context.Background()
	m := manager()
	s := open(m, "logged")
	cmd := exec.Command("sh", "-c", "echo done; echo oops >&2; (sleep 0.1; echo later) &")
	var shown bytes.Buffer
	cmd.Stdout = &shown
	t, err := s.Start(ctx, cmd, session.StartOptions{Log: true})
	if err != nil {
		log.Fatal(err)
	}
	t.Wait()
	fmt.Printf("shown: %q\n", shown.String())
	s.Wait(ctx, t.N(), session.WaitEmpty)
	m.Close(ctx, s.ID(), session.CloseOptions{})
	for l, err := range m.Logs(ctx, "logged", t.N(), session.LogOptions{}) {
		if err != nil {
			log.Fatal(err)
		}
		fmt.Printf("%s: %s\n", l.Stream, l.Text)
	}
	// Unordered output:
	// shown: "done\n"
	// stdout: done
	// stderr: oops
	// stdout: later
}

// Closing is idempotent: who comes second is told what the first did.
func ExampleManager_Close() {
	ctx := context.Background()
	m := manager()
	s := open(m, "twice")
	s.Release()
	r, err := m.Close(ctx, "twice", session.CloseOptions{})
	fmt.Println(r.AlreadyClosed, err)
	r, err = m.Close(ctx, "twice", session.CloseOptions{})
	fmt.Println(r.AlreadyClosed, err)
	_, err = m.Close(ctx, "never-opened", session.CloseOptions{})
	fmt.Println(errors.Is(err, session.ErrNotFound))
	// Output:
	// false <nil>
	// true <nil>
	// true
}

func ExampleManager_List() {
	ctx := context.Background()
	m := manager()
	for _, name := range []string{"first", "second"} {
		open(m, name).Release()
	}
	infos, err := m.List(ctx, session.ListOptions{})
	if err != nil {
		log.Fatal(err)
	}
	for _, i := range infos {
		fmt.Println(i.Name, i.State, i.Box.Containment)
		m.Close(ctx, i.ID, session.CloseOptions{Now: true})
	}
	// Output:
	// first open kernel
	// second open kernel
}

func ExampleManager_Inspect() {
	ctx := context.Background()
	m := manager()
	s := open(m, "inspected")
	defer m.Close(ctx, s.ID(), session.CloseOptions{Now: true})
	if _, err := s.Start(ctx, exec.Command("sleep", "600"), session.StartOptions{}); err != nil {
		log.Fatal(err)
	}
	i, err := m.Inspect(ctx, "inspected", session.InspectOptions{Processes: true})
	if err != nil {
		log.Fatal(err)
	}
	for _, t := range i.Tasks {
		fmt.Println(t.N, t.State, len(t.Processes))
	}
	// Output: 1 running 1
}

// One task ends with everything it started, the others run on.
func ExampleSession_KillTask() {
	ctx := context.Background()
	m := manager()
	s := open(m, "kill-one")
	defer m.Close(ctx, s.ID(), session.CloseOptions{Now: true})
	a, err := s.Start(ctx, exec.Command("sleep", "600"), session.StartOptions{})
	if err != nil {
		log.Fatal(err)
	}
	if _, err := s.Start(ctx, exec.Command("sleep", "600"), session.StartOptions{}); err != nil {
		log.Fatal(err)
	}
	if err := s.KillTask(ctx, a.N(), "no longer needed"); err != nil {
		log.Fatal(err)
	}
	r, _ := a.Wait()
	i, _ := m.Inspect(ctx, s.ID(), session.InspectOptions{})
	fmt.Println(r.State, r.Reason)
	fmt.Println(i.Running, "runs on")
	// Output:
	// killed no longer needed
	// 1 runs on
}

func ExampleSession_SignalTask() {
	ctx := context.Background()
	m := manager()
	s := open(m, "signal")
	defer m.Close(ctx, s.ID(), session.CloseOptions{Now: true})
	t, err := s.Start(ctx, exec.Command("sleep", "600"), session.StartOptions{})
	if err != nil {
		log.Fatal(err)
	}
	n, err := s.SignalTask(ctx, t.N(), syscall.SIGINT)
	r, _ := t.Wait()
	fmt.Println(n, err, r.State, r.Signal)
	// Output: 1 <nil> signaled interrupt
}

func ExampleSession_Freeze() {
	ctx := context.Background()
	m := manager()
	s := open(m, "frozen")
	defer m.Close(ctx, s.ID(), session.CloseOptions{Now: true})
	if err := s.Freeze(ctx); err != nil {
		log.Fatal(err)
	}
	_, err := s.Start(ctx, exec.Command("true"), session.StartOptions{})
	fmt.Println(errors.Is(err, session.ErrFrozen))
	fmt.Println(s.Thaw(ctx))
	// Output:
	// true
	// <nil>
}

// A ceiling that the machine cannot enforce is not an error, it is said.
func ExampleSession_SetLimits() {
	ctx := context.Background()
	m := manager()
	s := open(m, "limited")
	defer m.Close(ctx, s.ID(), session.CloseOptions{Now: true})
	ceilings, err := s.SetLimits(ctx, memlimit.Limits{PidsMax: memlimit.Bytes(500)})
	if err != nil {
		log.Fatal(err)
	}
	for _, c := range ceilings {
		fmt.Println(c.File, "wants", c.Want, "- said whether in force:", c.InForce || c.Why != "")
	}
	// Output: pids.max wants 500 - said whether in force: true
}

func ExampleManager_Receipts() {
	ctx := context.Background()
	m := manager()
	open(m, "remembered").Release()
	m.Close(ctx, "remembered", session.CloseOptions{})
	all, err := m.Receipts(time.Now().Add(-time.Hour))
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println(all[len(all)-1].Name)
	// Output: remembered
}
