package integration_test

import (
	"bytes"
	"encoding/json"
	"fmt"
	"testing"

	"github.com/sessionbox/sessionbox/pkg/session"
)

// open opens a session in the box that the tier is about and returns its id.
func (r *rig) open(name string, flags ...string) string {
	r.t.Helper()
	args := append([]string{"open", "--name", name, "--backend", r.box}, flags...)
	id := r.run(args...).must(r.t, 0, "open "+name).text()
	if id == "" {
		r.t.Fatal("open printed no id")
	}
	return id
}

// exec runs a command in a session to its end.
func (r *rig) exec(ref string, argv ...string) output {
	r.t.Helper()
	return r.run(append([]string{"exec", ref, "--"}, argv...)...)
}

// detach starts a command in a session that nobody waits for.
func (r *rig) detach(ref string, argv ...string) {
	r.t.Helper()
	r.run(append([]string{"exec", "-d", ref, "--"}, argv...)...).must(r.t, 0, "exec -d "+ref)
}

// close closes a session and returns its receipt beside the output.
func (r *rig) close(ref string, flags ...string) (session.Receipt, output) {
	r.t.Helper()
	o := r.run(append(append([]string{"close"}, flags...), "--json", ref)...)
	receipt, err := decodeReceipt(o.stdout)
	if err != nil {
		r.t.Fatalf("close %s --json: exit code %d: %v\nstdout: %s\nstderr: %s", ref, o.code, err, o.stdout, o.stderr)
	}
	return receipt, o
}

// closed closes a session of which nothing may be left.
func (r *rig) closed(ref string, flags ...string) session.Receipt {
	r.t.Helper()
	receipt, o := r.close(ref, flags...)
	o.must(r.t, 0, "close "+ref)
	if !receipt.Clean() {
		r.t.Errorf("close %s returned 0 and names survivors: %+v", ref, receipt.Survivors)
	}
	return receipt
}

// list gives the sessions that are not closed.
func (r *rig) list() []session.Info {
	r.t.Helper()
	o := r.run("ls", "--json").must(r.t, 0, "ls")
	infos, err := decodeInfos(o.stdout)
	if err != nil {
		r.t.Fatalf("ls --json: %v\n%s", err, o.stdout)
	}
	return infos
}

// listed finds a session in the list by id or name.
func (r *rig) listed(ref string) (session.Info, bool) {
	r.t.Helper()
	for _, i := range r.list() {
		if i.ID == ref || i.Name == ref {
			return i, true
		}
	}
	return session.Info{}, false
}

// inspect looks at one session.
func (r *rig) inspect(ref string) session.Info {
	r.t.Helper()
	o := r.run("inspect", "--json", ref).must(r.t, 0, "inspect "+ref)
	var info session.Info
	if err := json.Unmarshal(o.stdout, &info); err != nil {
		r.t.Fatalf("inspect --json: %v\n%s", err, o.stdout)
	}
	return info
}

// decodeReceipt reads what close --json prints for one session.
func decodeReceipt(out []byte) (session.Receipt, error) {
	var all []session.Receipt
	out = bytes.TrimSpace(out)
	if len(out) > 0 && out[0] == '{' {
		out = append(append([]byte{'['}, out...), ']')
	}
	if err := json.Unmarshal(out, &all); err != nil {
		return session.Receipt{}, err
	}
	if len(all) != 1 {
		return session.Receipt{}, fmt.Errorf("%d receipts", len(all))
	}
	return all[0], nil
}

// names tells whether a receipt names a process among those of its box, nested
// sessions included, and whether among the strays.
func names(r session.Receipt, id ident) (box, stray bool) {
	has := func(list []session.Fated) bool {
		for _, p := range list {
			if p.PID == id.pid && p.Start == id.start {
				return true
			}
		}
		return false
	}
	box, stray = has(r.Processes), has(r.Strays)
	for _, n := range r.Nested {
		b, s := names(n, id)
		box, stray = box || b, stray || s
	}
	return box, stray
}

// survives tells whether a receipt names a process among what is left.
func survives(r session.Receipt, id ident) bool {
	for _, s := range r.Survivors {
		if s.PID == id.pid {
			return true
		}
	}
	return false
}

// task gives a task of a session.
func task(t *testing.T, i session.Info, n int) session.TaskInfo {
	t.Helper()
	for _, ti := range i.Tasks {
		if ti.N == n {
			return ti
		}
	}
	t.Fatalf("session %s has no task %d: %+v", i.ID, n, i.Tasks)
	return session.TaskInfo{}
}
