package proc

import (
	"os/exec"
	"testing"

	"golang.org/x/sys/unix"
)

// One that was killed is ending at once, and not only when it was reaped.
func TestEnding(t *testing.T) {
	for range 20 {
		cmd := exec.Command("sleep", "600")
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		id, err := Lookup(cmd.Process.Pid)
		if err != nil {
			t.Fatal(err)
		}
		if Ending(id) {
			t.Error("one that lives is said to be ending")
		}
		if err := cmd.Process.Signal(unix.SIGKILL); err != nil {
			t.Fatal(err)
		}
		if !Ending(id) {
			t.Error("one that was killed is not said to be ending")
		}
		cmd.Wait()
		if !Ending(id) {
			t.Error("one that was reaped is not said to be ending")
		}
	}
}
