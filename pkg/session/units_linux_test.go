package session

import (
	"errors"
	"os"
	"path/filepath"
	"slices"
	"sync"
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
	write("kept.service", "[Service]\nEnvironment=\""+mine+"\" \"SESSIONBOX_KEEP=1\"\n", -time.Second)
	write("mentions.service", "[Service]\nEnvironment=\""+mine+"\" \"A=SESSIONBOX_KEEP=1\"\nExecStart=/bin/sh -c 'SESSIONBOX_KEEP=1 tmux'\n", -time.Second)
	// The user's own, of the same names as what is the session's.
	write("work.scope", "[Scope]\nSlice=sessionbox-abcdefghij.slice\n", -time.Second)
	write("work.service", "[Service]\n", -time.Second)
	write("tick.timer", "[Timer]\nEnvironment=\""+mine+"\"\n", -time.Second)
	write("tick.service", "[Service]\n", -time.Second)
	rec := store.Session{ID: "abcdefghij", Cookie: "00112233", Unit: "sessionbox-abcdefghij.slice", Created: opened}
	got := map[string]UnitInfo{}
	for _, u := range unitsAmong(unitFilesIn(dir, "user"), &rec) {
		got[u.Name] = u
	}
	for name, fate := range map[string]string{"marked.service": fateAlive, "mentions.service": fateAlive, "marked.timer": fateAlive, "placed.service": fateAlive, "since.service": FateSuspect,
		"work.scope": fateAlive, "work.service": FateSuspect, "tick.timer": fateAlive, "tick.service": FateSuspect} {
		if got[name].Fate != fate {
			t.Errorf("%s: %+v, want %s", name, got[name], fate)
		}
		delete(got, name)
	}
	if len(got) > 0 {
		t.Errorf("taken for the session's, or suspected: %+v", got)
	}
}

// TestEndAll: all are ended at once, those that start others first, and nothing that is
// not alive: a unit of its name may have come since.
func TestEndAll(t *testing.T) {
	units := []UnitInfo{
		{Name: "a.service", Fate: fateAlive}, {Name: "gone.service", Fate: FateEnded}, {Name: "killed.scope", Fate: FateKilled},
		{Name: "suspect.service", Fate: FateSuspect}, {Name: "b.scope", Fate: fateAlive}, {Name: "a.timer", Fate: fateAlive}, {Name: "c.path", Fate: fateAlive},
	}
	var mu sync.Mutex
	var order []string
	meet := map[bool]*sync.WaitGroup{true: {}, false: {}}
	meet[true].Add(2)
	meet[false].Add(2)
	endAll(units, func(name string) (bool, error) {
		mu.Lock()
		order = append(order, name)
		mu.Unlock()
		both := meet[starts(name)]
		both.Done()
		both.Wait() // each waits for the other
		if name == "c.path" {
			return false, errors.New("busy")
		}
		return name == "b.scope", nil
	})
	if len(order) != 4 || !starts(order[0]) || !starts(order[1]) {
		t.Errorf("ended in this order: %q", order)
	}
	var fates []string
	for _, u := range units {
		fates = append(fates, u.Fate)
	}
	if want := []string{FateEnded, FateEnded, FateKilled, FateSuspect, FateKilled, FateEnded, fateAlive}; !slices.Equal(fates, want) || units[6].Why != "busy" {
		t.Errorf("fates %q, want %q; %+v", fates, want, units[6])
	}
}

// TestSettleUnits: what is in the session's slice died with it, unless the manager, who was not
// heard, starts it again.
func TestSettleUnits(t *testing.T) {
	dir := t.TempDir()
	const in = "\nSlice=sessionbox-abcdefghij.slice\n"
	for name, text := range map[string]string{
		"once.service": "[Service]" + in, "no.service": "[Service]" + in + "Restart=no\n", "again.service": "[Service]" + in + "Restart=always\n",
		"fails.service": "[Service]" + in + "Restart=on-failure\n", "run.scope": "[Scope]" + in, "in.socket": "[Socket]" + in,
		"out.service": "[Service]\nEnvironment=SESSIONBOX_COOKIE=00112233\n",
	} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	units := unitsAmong(unitFilesIn(dir, "user"), &store.Session{ID: "abcdefghij", Cookie: "00112233", Unit: "sessionbox-abcdefghij.slice"})
	now := slices.Clone(units)
	units = append(units, UnitInfo{Name: "gone.service", Fate: fateAlive, returns: true}, UnitInfo{Name: "ended.service", Fate: FateEnded})
	settleUnits(units, now)
	for _, u := range units {
		want := FateKilled
		switch u.Name {
		case "again.service", "fails.service", "in.socket", "out.service":
			want = FateSurvived
		case "ended.service":
			want = FateEnded
		}
		if u.Fate != want || (u.Why == "") != (want != FateSurvived) {
			t.Errorf("%+v, want %s", u, want)
		}
	}
}
