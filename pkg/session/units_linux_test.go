package session

import (
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/sessionbox/sessionbox/pkg/store"
)

// TestUnitsOf reads what a manager has written down: whose a unit is, its own file proves,
// for a timer that of the service of its name.
func TestUnitsOf(t *testing.T) {
	dir := t.TempDir()
	opened := time.Now()
	write := func(name, text string, age time.Duration) {
		path := filepath.Join(dir, name)
		if err := os.WriteFile(path, []byte("# This is a transient unit file\n[Unit]\nDescription="+name+" does\n"+text), 0o644); err != nil {
			t.Fatal(err)
		}
		at := opened.Add(-age)
		if err := os.Chtimes(path, at, at); err != nil {
			t.Fatal(err)
		}
	}
	const mine, hour = "SESSIONBOX_COOKIE=00112233", time.Hour
	write("marked.service", "[Service]\nEnvironment=\""+mine+"\"\n", -time.Second)
	write("marked.timer", "[Timer]\n", -time.Second)
	write("placed.service", "[Service]\nSlice=sessionbox-abcdefghij.slice\n", -time.Second)
	write("moved.scope", "[Scope]\nSlice=app.slice\n", -time.Second)
	write("libpod-1.scope", "[Scope]\nSlice=sessionbox-abcdefghij.slice\n", -time.Second)
	write("sessionbox-abcdefghij-main.service", "[Service]\nSlice=sessionbox-abcdefghij.slice\n", -time.Second)
	write("other.service", "[Service]\nEnvironment=\"SESSIONBOX_COOKIE=44556677\"\n", -time.Second)
	write("theirs.service", "[Service]\nSlice=sessionbox-bbbbbbbbbb.slice\n", -time.Second)
	write("since.service", "[Service]\n", -time.Second)
	write("before.service", "[Service]\n", hour)
	rec := store.Session{ID: "abcdefghij", Cookie: "00112233", Unit: "sessionbox-abcdefghij.slice", Created: opened}
	got := map[string]UnitInfo{}
	for _, u := range unitsIn(dir, "user", &rec) {
		got[u.Name] = u
	}
	for name, fate := range map[string]string{"marked.service": fateAlive, "marked.timer": fateAlive, "placed.service": fateAlive, "since.service": FateSuspect} {
		if got[name].Fate != fate {
			t.Errorf("%s: %+v, want %s", name, got[name], fate)
		}
		delete(got, name)
	}
	if len(got) > 0 {
		t.Errorf("taken for the session's, or suspected: %+v", got)
	}
}
