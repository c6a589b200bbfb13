package integration_test

import (
	"strings"
	"testing"
)

// TestCloseTwiceSparesOthers: a session that is closed, by its name or id, is closed: to
// close it again, or to kill it, does not reach one whose name begins so, as that of what
// was kept of it does. The soak found that a freeze did.
func TestCloseTwiceSparesOthers(t *testing.T) {
	for _, named := range []bool{true, false} {
		t.Run(map[bool]string{true: "name", false: "id"}[named], func(t *testing.T) {
			r := newRig(t)
			c := r.canary()
			kept, longer := r.payloads("kept"), r.payloads("longer")
			args := []string{"open", "--backend", r.box}
			if named {
				args = append(args, "--name", "work")
			}
			ref := r.run(args...).must(t, 0, "open").text()
			if named {
				ref = "work"
			}
			name := r.run(append([]string{"exec", "-d", "--keep", ref, "--"}, kept.argv("payload")...)...).must(t, 0, "exec --keep").text()
			kept.await(1)
			id := r.open(ref + "-2")
			r.detach(id, longer.argv("payload")...)
			longer.await(1)
			r.closed(ref)
			r.run("close", "--now", ref).must(t, 0, "close again")
			for _, call := range [][]string{{"kill", ref}, {"freeze", ref}, {"exec", ref, "--", "true"}} {
				if o := r.run(call...); o.code == 0 {
					t.Errorf("%v: exit code 0: %s", call, o.stdout)
				}
			}
			kept.ticking()
			longer.ticking()
			r.run("inspect", keptName(name)).must(t, 0, "its own name")
			c.lives()
			r.closed(keptName(name), graceFlags()...)
			r.closed(id, graceFlags()...)
			r.nothing("at the end")
		})
	}
}

// keptName is the session of a kept task.
func keptName(ref string) string {
	name, _, _ := strings.Cut(ref, "/")
	return name
}
