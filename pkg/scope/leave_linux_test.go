package scope

import (
	"bufio"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// Who closes a session from inside is out of its box, and stays in that of the
// session around it.
func TestLeaveBox(t *testing.T) {
	m := manager(t)
	exe, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	outer := create(t, m, spec())
	inner := create(t, m, spec(outer.spec.ID))
	deepest := create(t, m, spec(outer.spec.ID, inner.spec.ID))
	for _, b := range []*Box{deepest, inner, outer} {
		ids := append(append([]string{}, b.spec.Parents...), b.spec.ID)
		cmd := exec.Command(exe, append([]string{"__leave"}, ids...)...)
		in, err := cmd.StdinPipe()
		if err != nil {
			t.Fatal(err)
		}
		out, err := cmd.StdoutPipe()
		if err != nil {
			t.Fatal(err)
		}
		if err := deepest.Start(t.Context(), "task-1", cmd); err != nil {
			t.Fatal(err)
		}
		line, err := bufio.NewReader(out).ReadString('\n')
		cg := strings.TrimSpace(line)
		if err != nil || !strings.HasSuffix(cg, ".scope") {
			t.Errorf("%q, %v", cg, err)
		}
		t.Log(cg)
		if b == outer {
			if strings.Contains(cg, outer.Unit) {
				t.Errorf("it did not leave: %s", cg)
			}
		} else if filepath.Base(filepath.Dir(cg)) != b.spec.parentUnit() {
			t.Errorf("it is in %s, not in %s", cg, b.spec.parentUnit())
		}
		in.Close()
		cmd.Wait()
		eventually(t, "its scope to go", func() bool { return !loaded(t, m, filepath.Base(cg)) })
	}
}

// Closing a box from inside works, as does closing the one around it afterwards.
func TestLeaveBoxThenClose(t *testing.T) {
	m := manager(t)
	exe, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	outer := create(t, m, spec())
	inner := create(t, m, spec(outer.spec.ID))
	cmd := exec.Command(exe, "__leave", outer.spec.ID, inner.spec.ID)
	in, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	defer in.Close()
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := inner.Start(t.Context(), "task-1", cmd); err != nil {
		t.Fatal(err)
	}
	if _, err := bufio.NewReader(out).ReadString('\n'); err != nil {
		t.Fatal(err)
	}
	kill(t, inner, "")
	if err := inner.Remove(t.Context()); err != nil {
		t.Fatal(err)
	}
	members, err := outer.Members("")
	if err != nil || len(members) != 2 { // its anchor and the closer
		t.Errorf("%v, %v", members, err)
	}
	kill(t, outer, "") // the closer, too
	cmd.Wait()
	remove(t, m, outer)
	nothingLeft(t, m, inner.spec) // the closer's scope is named after it
}
