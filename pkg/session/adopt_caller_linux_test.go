package session_test

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"testing"
	"time"

	"github.com/sessionbox/sessionbox/pkg/internal/proc"
	"github.com/sessionbox/sessionbox/pkg/session"
)

// adoptParent is a program that adopts the one who started it, itself included, and
// lives on: what a harness's helper in the agent's tree may be.
func adoptParent(id string) int {
	s, err := manager().Get(context.Background(), id)
	if err == nil {
		var a session.Adopted
		a, err = s.Adopt(context.Background(), []session.Root{{PID: os.Getppid()}}, session.AdoptOptions{})
		json.NewEncoder(os.Stdout).Encode(a)
	}
	if err != nil {
		fmt.Println(err)
		return 1
	}
	time.Sleep(time.Minute)
	return 0
}

// A caller that is one of the tree and goes on comes in as well, last of all.
func TestBoxAdoptsTheCaller(t *testing.T) {
	m := manager()
	s, err := m.Open(t.Context(), session.OpenOptions{Name: "caller", Kind: "cgroup"})
	if err != nil {
		t.Fatal(err)
	}
	defer s.Release()
	agent := exec.Command("/bin/sh", "-c", "'"+os.Args[0]+"' adopt-parent "+s.ID()+" & sleep 300 & wait")
	agent.Stderr = os.Stderr
	out, err := agent.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := agent.Start(); err != nil {
		t.Fatal(err)
	}
	defer func() { agent.Process.Kill(); agent.Wait() }()
	var a session.Adopted
	if err := json.NewDecoder(out).Decode(&a); err != nil {
		t.Fatal(err)
	}
	if n := len(a.Processes); n != 3 || a.Processes[0].PID != agent.Process.Pid || a.Task != 1 {
		t.Fatalf("%+v, want the shell, its sleep and the caller", a)
	}
	for _, p := range a.Processes {
		if cg, err := proc.Cgroup(p.PID); err != nil || !strings.Contains(cg, s.ID()) {
			t.Errorf("%s %d is in %s, %v", p.Comm, p.PID, cg, err)
		}
	}
	if last, err := proc.ReadStat(a.Processes[2].PID); err != nil || last.PPID != agent.Process.Pid || strings.Contains(last.Comm, "sleep") {
		t.Errorf("the last is %+v, %v; want the caller", last, err)
	}
	r, err := m.Close(t.Context(), s.ID(), session.CloseOptions{Now: true})
	if err != nil || len(r.Processes) != 3 {
		t.Errorf("close: %d processes, %v", len(r.Processes), err)
	}
}
