package engines

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

func TestDaemonRuns(t *testing.T) {
	comm, err := os.ReadFile("/proc/self/comm")
	if err != nil {
		t.Fatal(err)
	}
	own := strings.TrimSpace(string(comm))
	file := filepath.Join(t.TempDir(), "d.pid")
	if daemonRuns(file, own) {
		t.Error("without a file")
	}
	for text, want := range map[string]bool{fmt.Sprintln(os.Getpid()): true, "": false, "-1": false, "0": false, "1": own == "systemd", "99999999": false, "x": false} {
		if err := os.WriteFile(file, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
		if daemonRuns(file, own) != want {
			t.Errorf("%q: runs %t", text, !want)
		}
	}
	if err := os.WriteFile(file, []byte(fmt.Sprint(os.Getpid())), 0o644); err != nil {
		t.Fatal(err)
	}
	if daemonRuns(file, own+"x") {
		t.Error("a process of another name, which has its number now")
	}
}
