package session

import (
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"testing"

	"github.com/sessionbox/sessionbox/pkg/store"
)

// TestWatching: the conmon of a container that has survived is not ended as a stray: nothing
// else would prove to the next close whose the container is.
func TestWatching(t *testing.T) {
	dir := t.TempDir()
	sh, err := os.ReadFile("/bin/sh")
	if err != nil {
		t.Fatal(err)
	}
	for name, b := range map[string][]byte{"conmon": sh, "podman": []byte("#!/bin/sh\nexit 1\n")} {
		if err := os.WriteFile(filepath.Join(dir, name), b, 0o755); err != nil {
			t.Fatal(err)
		}
	}
	t.Setenv("PATH", dir+":/usr/bin:/bin")
	conmon := exec.Command(filepath.Join(dir, "conmon"), "-c", "echo; read x", "conmon", "-c", "container")
	conmon.Env = []string{EnvCookie + "=c00c1e"}
	in, err := conmon.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	out, err := conmon.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := conmon.Start(); err != nil {
		t.Fatal(err)
	}
	defer conmon.Wait()
	defer in.Close()
	if _, err := io.ReadFull(out, make([]byte, 1)); err != nil {
		t.Fatal(err)
	}
	found := conmonsOf(allConmons(), "c00c1e")
	if len(found) != 1 || found[0].pid != conmon.Process.Pid {
		t.Fatalf("found %+v", found)
	}
	c := closing{rec: store.Session{Cookie: "c00c1e"}}
	for fate, want := range map[string][]int{FateSurvived: {conmon.Process.Pid}, FateSuspect: {conmon.Process.Pid}, FateKilled: nil} {
		c.r.Containers = []HiredContainer{{ID: "another", Fate: FateSurvived}, {ID: found[0].id, Fate: fate}}
		if got := c.watching(); !slices.Equal(got, want) {
			t.Errorf("of a container that is %s: %v, want %v", fate, got, want)
		}
	}
}
