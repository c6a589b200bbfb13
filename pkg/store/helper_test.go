package store

import (
	"encoding/json"
	"os"
	"path/filepath"
	"testing"
	"time"

	specs "github.com/opencontainers/runtime-spec/specs-go"
)

func testStore(t testing.TB) *Store {
	t.Helper()
	dir := filepath.Join(t.TempDir(), "state")
	s, err := Open(Dirs{State: dir, History: filepath.Join(dir, "history"), UID: os.Geteuid()})
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func newSession(name string) Session {
	limit := int64(4 << 30)
	return Session{
		Schema: Schema, ID: NewID(), Name: name, State: StateOpen,
		Labels:  map[string]string{"agent": "test"},
		Created: time.Date(2026, 8, 1, 12, 0, 0, 123456789, time.UTC),
		Boot:    "e3a1f1c2-0000-4000-8000-000000000001", UID: os.Geteuid(),
		Kind: KindCgroup, Path: "/sessionbox/x", Inode: 4711, Cookie: NewCookie(),
		Grace:   1500 * time.Millisecond,
		Limits:  &specs.LinuxResources{Memory: &specs.LinuxMemory{Limit: &limit}},
		Creator: ProcID{PID: 4711, Start: 12345, Boot: "e3a1"}, Cwd: "/work",
	}
}

func newTask() Task {
	return Task{
		Argv: []string{"sh", "-c", "true"}, Cwd: "/work", State: TaskStarting,
		Started: time.Date(2026, 8, 1, 12, 0, 1, 0, time.UTC), Timeout: 90 * time.Second,
		Supervisor: ProcID{PID: 4711, Start: 12345},
	}
}

func mustMarshal(t testing.TB, v json.Marshaler) []byte {
	t.Helper()
	data, err := v.MarshalJSON()
	if err != nil {
		t.Fatal(err)
	}
	return data
}

func mustClaim(t testing.TB, s *Store, rec Session) Session {
	t.Helper()
	if err := s.Claim(t.Context(), rec); err != nil {
		t.Fatal(err)
	}
	return rec
}

func linkName(t testing.TB, s *Store, rec Session) {
	t.Helper()
	if err := os.Symlink(rec.ID, filepath.Join(s.namesDir(), rec.Name)); err != nil {
		t.Fatal(err)
	}
}

func writeFile(t testing.TB, path, content string) {
	t.Helper()
	if err := os.WriteFile(path, []byte(content), 0o600); err != nil {
		t.Fatal(err)
	}
}
