package render

import (
	"strings"
	"testing"
	"time"

	"github.com/sessionbox/sessionbox/pkg/memlimit"
	"github.com/sessionbox/sessionbox/pkg/session"
)

// TestOutOfMemory: what died of memory is never shown as plain killed, in no view.
func TestOutOfMemory(t *testing.T) {
	now := time.Now()
	oom := &memlimit.Kill{Processes: 1, Limit: memlimit.Place{Kind: memlimit.KindSession, Name: "work"}, Sure: true, Victims: []memlimit.Victim{{PID: 4711, Comm: "node"}}}
	const said = "node (4711) was killed for the memory limit of work"
	tasks := []session.TaskInfo{
		{N: 1, State: "oom_killed", Argv: []string{"npm", "test"}, Signal: "SIGKILL", OOM: oom, Reason: said, Started: now, Ended: &now},
		{N: 2, State: "oom_killed", Argv: []string{"sh", "-c", "npm test"}, Exit: new(137), OOM: oom, Reason: said, Started: now, Ended: &now},
	}
	info := session.Info{ID: "aaaaaaaaaa", Name: "work", State: "open", Created: now, OOM: oom, Tasks: tasks, Box: session.BoxInfo{Kind: "cgroup"},
		OOMPolicy: &session.OOMInfo{Policy: "task", Why: "memory controller not delegated"}}
	receipt := session.Receipt{ID: info.ID, Name: "work", OOM: oom, Tasks: tasks, Closed: now}
	st := Style{Now: now, Whole: true}
	for name, c := range map[string]struct {
		write func(*strings.Builder) error
		want  []string
	}{
		"inspect": {func(b *strings.Builder) error { return Inspect(b, &info, st) }, []string{said, "oom killed", "--oom task is not in force: memory controller not delegated"}},
		"ls":      {func(b *strings.Builder) error { return List(b, []Row{{Info: info}}, st) }, []string{"work!", "! work: out of memory: " + said, "* work: --oom task is not in force"}},
		"receipt": {func(b *strings.Builder) error { return Receipt(b, &receipt, st) }, []string{"out of memory: " + said}},
		"history": {func(b *strings.Builder) error { return History(b, []session.Receipt{receipt}, st) }, []string{"1 out of memory"}},
	} {
		var b strings.Builder
		if err := c.write(&b); err != nil {
			t.Fatal(err)
		}
		for _, want := range c.want {
			if !strings.Contains(b.String(), want) {
				t.Errorf("%s does not say %q:\n%s", name, want, b.String())
			}
		}
		if strings.Contains(b.String(), "exited 137") {
			t.Errorf("%s calls it an exit:\n%s", name, b.String())
		}
	}
}
