package integration_test

import (
	"strings"
	"testing"

	"github.com/sessionbox/sessionbox/pkg/session"
)

// TestDryRunNested: who is in a session inside is told once.
func TestDryRunNested(t *testing.T) {
	r := newRig(t)
	outer := r.open("dry-outer")
	r.exec(outer, bin(), "open", "--name", "dry-inner", "--backend", r.box).must(t, 0, "open inside")
	r.detach(outer, "sleep", "6001")
	r.detach("dry-inner", "sleep", "6002")
	receipt, o := r.close(outer, "--dry-run")
	o.must(t, 0, "close --dry-run")
	if len(receipt.Processes) != 1 || len(receipt.Nested) != 1 || len(receipt.Nested[0].Processes) != 1 {
		t.Errorf("outer: %+v; inside: %+v", receipt.Processes, receipt.Nested)
	}
	r.closed(outer, "--now")
	r.nothing("at the end")
}

// TestRunKeeps: run says that somebody lives on, though nothing was ended.
func TestRunKeeps(t *testing.T) {
	r := newRig(t)
	p := r.payloads("kept")
	o := r.run("run", "--name", "keeps", "--backend", r.box, "--", "sh", "-c", session.EnvKeep+"=1 "+shellWords(p.argv("payload"))+" >/dev/null 2>&1 & sleep 1")
	o.must(t, 0, "run")
	if !strings.Contains(string(o.stderr), ", 1 kept") {
		t.Errorf("run says %q", o.stderr)
	}
	r.closed("keeps.kept-1", "--now")
	p.stopped()
	r.nothing("at the end")
}
