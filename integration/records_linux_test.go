package integration_test

import (
	"encoding/json"
	"maps"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
)

// stateDir is where the command under test keeps the records of this test.
func (r *rig) stateDir() string { return filepath.Join(r.home, "state") }

// taskRecord is the file of a task.
func (r *rig) taskRecord(id string, n int) string {
	return filepath.Join(r.stateDir(), "sessions", id, "tasks", strconv.Itoa(n)+".json")
}

// sessionRecord is the file of a session.
func (r *rig) sessionRecord(id string) string {
	return filepath.Join(r.stateDir(), "sessions", id, "session.json")
}

// forge changes fields of a record behind the command's back, as pid reuse, a crash
// or an enemy would have it.
func forge(t *testing.T, file string, fields map[string]any) {
	t.Helper()
	b, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	var rec map[string]any
	if err := json.Unmarshal(b, &rec); err != nil {
		t.Fatalf("%s: %v", file, err)
	}
	maps.Copy(rec, fields)
	if b, err = json.Marshal(rec); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(file, b, 0o600); err != nil {
		t.Fatal(err)
	}
}

func readJSON(t *testing.T, file string, v any) {
	t.Helper()
	b, err := os.ReadFile(file)
	if err == nil {
		err = json.Unmarshal(b, v)
	}
	if err != nil {
		t.Fatalf("%s: %v", file, err)
	}
}

// write makes an empty file that somebody waits for.
func write(t *testing.T, file string) {
	t.Helper()
	if err := os.WriteFile(file, nil, 0o644); err != nil {
		t.Fatal(err)
	}
}

func exists(file string) bool {
	_, err := os.Lstat(file)
	return err == nil
}

func bootID(t *testing.T) string {
	t.Helper()
	b, err := os.ReadFile("/proc/sys/kernel/random/boot_id")
	if err != nil {
		t.Fatal(err)
	}
	return strings.TrimSpace(string(b))
}
