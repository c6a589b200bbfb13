package doors

import (
	"bytes"
	"context"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
)

// TestStartGivesUp: who never comes to close the doors is ended, and not waited for when its
// end does not come, as that of one whose output another process holds.
func TestStartGivesUp(t *testing.T) {
	dir := t.TempDir()
	helper, noted := filepath.Join(dir, "helper"), filepath.Join(dir, "noted")
	script := "#!/bin/sh\nsleep 600 &\necho $! >" + noted + "\nwait\n"
	if err := unix.Mkfifo(noted, 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(helper, []byte(script), 0o755); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	said := make(chan []byte, 1)
	go func() {
		b, _ := os.ReadFile(noted) // it is a pipe
		said <- b
		cancel()
	}()
	cmd := exec.Command("true")
	var out bytes.Buffer
	cmd.Stdout = &out
	if err := Start(ctx, cmd, helper, Order{}, cmd.Start); !errors.Is(err, context.Canceled) {
		t.Errorf("it gives %v", err)
	}
	pid, err := strconv.Atoi(strings.TrimSpace(string(<-said)))
	if err != nil {
		t.Fatal(err)
	}
	p, err := os.FindProcess(pid) // by a pidfd
	if err != nil {
		t.Fatal(err)
	}
	argv, err := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/cmdline")
	if err != nil || !bytes.HasPrefix(argv, []byte("sleep\x00")) {
		t.Fatalf("%d is %q, %v", pid, argv, err)
	}
	if err := p.Kill(); err != nil {
		t.Error(err)
	}
}
