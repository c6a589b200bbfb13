package session_test

import (
	"bytes"
	"errors"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/sessionbox/sessionbox/pkg/session"
)

// TestBoxLogDetached: a detached command with a log holds nothing that its starter had.
func TestBoxLogDetached(t *testing.T) {
	m := manager()
	s := open(m, "log-detached")
	defer m.Close(t.Context(), s.ID(), session.CloseOptions{Now: true})
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	cmd := exec.Command("sh", "-c", "echo text; sleep 600")
	cmd.Stdout, cmd.Stderr = w, w
	_, n, err := s.StartDetached(t.Context(), cmd, session.StartOptions{Log: true})
	w.Close()
	if err != nil {
		t.Fatal(err)
	}
	r.SetReadDeadline(time.Now().Add(10 * time.Second))
	if b, err := io.ReadAll(r); err != nil || len(b) > 0 {
		t.Errorf("the pipe has %q, %v, want its end", b, err)
	}
	for l, err := range m.Logs(t.Context(), "log-detached", n, session.LogOptions{Follow: true}) {
		if err != nil || string(l.Text) != "text" {
			t.Errorf("the log has %q, %v", l.Text, err)
		}
		break
	}
}

// TestBoxLogShown: one writer for both streams is written to by one goroutine, and the
// command has its own streams back.
func TestBoxLogShown(t *testing.T) {
	m := manager()
	s := open(m, "log-shown")
	defer m.Close(t.Context(), s.ID(), session.CloseOptions{Now: true})
	var both bytes.Buffer
	cmd := exec.Command("sh", "-c", "for i in 1 2 3 4 5; do echo out; echo err >&2; done; (sleep 600) & printf end")
	cmd.Stdout, cmd.Stderr = &both, &both
	task, err := s.Start(t.Context(), cmd, session.StartOptions{Log: true})
	if err != nil {
		t.Fatal(err)
	}
	if cmd.Stdout != &both || cmd.Stderr != &both {
		t.Error("the command's streams are not what they were")
	}
	if r, err := task.Wait(); err != nil || r.LostBytes != 0 || r.Leftovers != 1 {
		t.Errorf("ended as %+v, %v", r, err)
	}
	got := both.String()
	if strings.Count(got, "out\n") != 5 || strings.Count(got, "err\n") != 5 || !strings.Contains(got, "end") {
		t.Errorf("shown: %q", got)
	}
}

// TestBoxLogRefused: a start that fails leaves no log.
func TestBoxLogRefused(t *testing.T) {
	m := manager()
	s := open(m, "log-refused")
	defer m.Close(t.Context(), s.ID(), session.CloseOptions{Now: true})
	_, err := s.Start(t.Context(), exec.Command("true"), session.StartOptions{Log: true, LogMax: 1})
	if !errors.Is(err, session.ErrUsage) {
		t.Errorf("a log of one byte: %v", err)
	}
	_, err = s.Start(t.Context(), exec.Command("/no/such/command"), session.StartOptions{Log: true})
	if !session.NotFoundCommand(err) {
		t.Errorf("no command: %v", err)
	}
	logs, _ := filepath.Glob(filepath.Join(os.Getenv("SESSIONBOX_STATE_DIR"), "history", "logs", s.ID(), "*"))
	if len(logs) > 0 {
		t.Errorf("left: %q", logs)
	}
	for _, err := range m.Logs(t.Context(), s.ID(), 2, session.LogOptions{}) {
		if !errors.Is(err, session.ErrNotFound) {
			t.Errorf("Logs of what did not start: %v", err)
		}
	}
}
