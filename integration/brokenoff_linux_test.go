package integration_test

import (
	"encoding/json"
	"os"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"github.com/sessionbox/sessionbox/pkg/session"
)

// TestCloseInterrupted: a close is broken off in its grace, when some have ended. The one that
// finishes it tells of those, too, and so does the history.
func TestCloseInterrupted(t *testing.T) {
	r := newRig(t)
	id := r.open("interrupted")
	r.exec(id, bin(), "open", "--name", "interrupted-inner", "--backend", r.box).must(t, 0, "open inside")
	r.detach("interrupted-inner", "sleep", "6003")
	r.detach(id, "sleep", "6001")
	r.detach(id, "sh", "-c", `trap "" TERM; echo $$ >"$1"; while :; do sleep 0.2; done`, "deaf", r.home+"/deaf")
	deaf := 0
	eventually(t, "one does not hear", func() bool {
		b, _ := os.ReadFile(r.home + "/deaf")
		deaf, _ = strconv.Atoi(strings.TrimSpace(string(b)))
		return deaf > 0
	})

	closer := r.start(bin(), "close", "--grace", "120s", "--json", id)
	eventually(t, "the others have ended", func() bool {
		i := r.inspect(id)
		return !slices.ContainsFunc(i.Tasks, func(t session.TaskInfo) bool { return t.N == 2 && t.State == "running" })
	})
	if err := closer.cmd.Process.Signal(syscall.SIGINT); err != nil {
		t.Fatal(err)
	}
	closer.wait().must(t, 130, "close, interrupted")

	receipt := r.closed(id, "--now")
	if !receipt.Resumed {
		t.Error("the receipt does not say that it finished what another began")
	}
	told(t, "the receipt", &receipt, deaf)
	o := r.run("history", "--json").must(t, 0, "history")
	var past []session.Receipt
	if err := json.Unmarshal(o.stdout, &past); err != nil {
		t.Fatal(err)
	}
	i := slices.IndexFunc(past, func(p session.Receipt) bool { return p.ID == id })
	if i < 0 {
		t.Fatalf("not in the history: %s", o.stdout)
	}
	told(t, "the history", &past[i], deaf)
}

// told checks that a receipt has the fates of both, once.
func told(t *testing.T, which string, r *session.Receipt, deaf int) {
	t.Helper()
	fates := map[string][]string{}
	for i := range r.Processes {
		switch p := &r.Processes[i]; {
		case p.PID == deaf:
			fates["deaf"] = append(fates["deaf"], p.Fate)
		case len(p.Argv) == 2:
			fates[p.Argv[1]] = append(fates[p.Argv[1]], p.Fate)
		}
	}
	if got := fates["6001"]; !slices.Equal(got, []string{session.FateEnded}) {
		t.Errorf("%s: who listened: %q, want ended", which, got)
	}
	if got := fates["deaf"]; !slices.Equal(got, []string{session.FateKilled}) {
		t.Errorf("%s: who did not: %q, want killed", which, got)
	}
	if len(r.Nested) != 1 || len(r.Nested[0].Processes) != 1 || r.Nested[0].Processes[0].Fate != session.FateEnded {
		t.Errorf("%s: the session inside: %+v", which, r.Nested)
	}
}
