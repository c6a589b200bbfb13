package session_test

import (
	"fmt"
	"io"
	"log/slog"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"github.com/sessionbox/sessionbox/pkg/memlimit"
	"github.com/sessionbox/sessionbox/pkg/session"
)

// listen is a daemon that serves whoever connects until it is killed.
func listen(socket string) int {
	l, err := net.Listen("unix", socket)
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	for {
		c, err := l.Accept()
		if err != nil {
			return 1
		}
		defer c.Close()
	}
}

// dial is a client that stays connected for as long as the daemon does.
func dial(socket string) int {
	for range 1000 {
		c, err := net.Dial("unix", socket)
		if err != nil {
			time.Sleep(10 * time.Millisecond)
			continue
		}
		io.Copy(io.Discard, c)
		return 0
	}
	return 1
}

// other is a copy of this program: who runs it is none of the session's own.
func other(t *testing.T) string {
	t.Helper()
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	program, err := os.ReadFile(self)
	if err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(t.TempDir(), "other")
	if err := os.WriteFile(path, program, 0o755); err != nil {
		t.Fatal(err)
	}
	return path
}

// TestBoxMemoryClose: for want of memory what serves others is ended, too, though a close that
// somebody asks for would spare it.
func TestBoxMemoryClose(t *testing.T) {
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	m, err := session.New(session.Config{Helper: self, NoGuard: true, Log: slog.New(slog.DiscardHandler)})
	if err != nil {
		t.Fatal(err)
	}
	steps := memlimit.MayClose
	s, err := m.Open(t.Context(), session.OpenOptions{Memory: session.MemoryOptions{Steps: &steps}})
	if err != nil {
		t.Fatal(err)
	}
	defer m.Close(t.Context(), s.ID(), session.CloseOptions{Now: true, Shared: session.SharedInclude})
	program, socket := other(t), filepath.Join(t.TempDir(), "s")
	if _, err := s.Start(t.Context(), exec.Command(program, "listen", socket), session.StartOptions{}); err != nil {
		t.Fatal(err)
	}
	client := exec.Command(program, "dial", socket)
	if err := client.Start(); err != nil {
		t.Fatal(err)
	}
	defer client.Wait()
	defer client.Process.Kill()
	for spared := false; !spared; time.Sleep(10 * time.Millisecond) {
		served, err := m.Served(t.Context(), s.ID())
		if err != nil {
			t.Fatal(err)
		}
		spared = slices.ContainsFunc(served, func(d session.Served) bool { return d.Spared })
	}
	info, err := m.Inspect(t.Context(), s.ID(), session.InspectOptions{})
	if err != nil {
		t.Fatal(err)
	}
	r, err := m.MemoryClose(t.Context(), session.MemoryDeed{ID: s.ID(), Inode: info.Box.Inode, Reason: "a test"}, 0)
	if err != nil {
		t.Fatal(err)
	}
	if len(r.Served) != 1 || r.Served[0].Spared || len(r.Kept) > 0 {
		t.Errorf("the receipt says %+v, kept %+v", r.Served, r.Kept)
	}
}
