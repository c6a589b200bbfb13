package guard

import (
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// A command that is not to inherit our defence is run as it was written.
func TestWithoutScore(t *testing.T) {
	for _, score := range []int{0, oomScore} {
		argv := withoutScore(`cat /proc/self/oom_score_adj; echo "it's \"$A\" $0 $#"; exit 3`, score)
		cmd := exec.Command(argv[0], argv[1:]...)
		cmd.Env = []string{"A=x", "PATH=" + os.Getenv("PATH")}
		out, err := cmd.CombinedOutput()
		var exit *exec.ExitError
		if !errors.As(err, &exit) || exit.ExitCode() != 3 || string(out) != "0\nit's \"x\" /bin/sh 0\n" {
			t.Errorf("at %d: %q, %v", score, out, err)
		}
	}
}

// The kernel takes others first, and the commands that a guard runs with a warning are
// among those.
func TestDefend(t *testing.T) {
	before, err := os.ReadFile(oomScoreFile)
	if err != nil {
		t.Fatal(err)
	}
	defer os.WriteFile(oomScoreFile, before, 0)
	Defend()
	score, err := readScore()
	if err != nil {
		t.Fatal(err)
	}
	if score > oomScore {
		t.Skipf("not privileged: oom_score_adj stays %d", score)
	}
	dir := t.TempDir()
	_, log := newLogged()
	c := newCommands(log)
	c.run(t.Context(), "a", `cat /proc/self/oom_score_adj >score; echo "it's \"quoted\"" >said`, dir, nil)
	c.wait()
	for name, want := range map[string]string{"score": "0", "said": `it's "quoted"`} {
		b, err := os.ReadFile(filepath.Join(dir, name))
		if got := strings.TrimSpace(string(b)); err != nil || got != want {
			t.Errorf("%s is %q, %v; want %q", name, got, err, want)
		}
	}
}
