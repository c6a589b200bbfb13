package guard

import (
	"bytes"
	"flag"
	"log/slog"
	"os"
	"path/filepath"
	"testing"

	"github.com/google/go-cmp/cmp"
)

var update = flag.Bool("update", false, "write the golden files")

func golden(t *testing.T, name, got string) {
	t.Helper()
	path := filepath.Join("testdata", name)
	if *update {
		if err := os.MkdirAll("testdata", 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(got), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(string(want), got); diff != "" {
		t.Errorf("%s (-want +got):\n%s", name, diff)
	}
}

func TestServiceFiles(t *testing.T) {
	plain := Service{Program: "/usr/local/bin/sessionbox"}
	full := Service{Program: `/opt/my "tools"/100%/$x/sessionbox`, Metrics: "unix:/run/user/1000/m & $n.sock",
		Env: []string{"SESSIONBOX_STATE_DIR=/home/a $b/<state>"}, System: true}
	golden(t, "plain.service", plain.UnitFile())
	golden(t, "full.service", full.UnitFile())
	golden(t, "plain.plist", plain.Plist())
	golden(t, "full.plist", full.Plist())
	for _, c := range []struct{ got, want string }{
		{plain.UnitPath("/home/a", ""), "/home/a/.config/systemd/user/sessionbox-guard.service"},
		{plain.UnitPath("/home/a", "/c"), "/c/systemd/user/sessionbox-guard.service"},
		{full.UnitPath("/root", "/c"), "/etc/systemd/system/sessionbox-guard.service"},
		{plain.PlistPath("/Users/a"), "/Users/a/Library/LaunchAgents/dev.sessionbox.guard.plist"},
		{full.PlistPath("/Users/a"), "/Library/LaunchDaemons/dev.sessionbox.guard.plist"},
	} {
		if c.got != c.want {
			t.Errorf("%s, want %s", c.got, c.want)
		}
	}
}

func TestWriteIsIdempotent(t *testing.T) {
	path := filepath.Join(t.TempDir(), "a", "b", Unit)
	for _, c := range []struct{ text, want string }{{"1", "installed"}, {"1", "unchanged"}, {"2", "updated"}, {"2", "unchanged"}} {
		got, err := write(path, c.text)
		if b, rerr := os.ReadFile(path); err != nil || rerr != nil || got != c.want || string(b) != c.text {
			t.Errorf("write %s: %s, %v, %s; want %s", c.text, got, err, b, c.want)
		}
	}
	if left, _ := os.ReadDir(filepath.Dir(path)); len(left) != 1 {
		t.Errorf("%v is left", left)
	}
	for _, want := range []string{"removed", "absent"} {
		if got, err := remove(path); err != nil || got != want {
			t.Errorf("remove: %s, %v; want %s", got, err, want)
		}
	}
}

// One message is one line, with the priority that the journal wants.
func TestLog(t *testing.T) {
	var b bytes.Buffer
	for _, journal := range []bool{true, false} {
		log := NewLog(&b, journal, slog.LevelInfo)
		log.Debug("no")
		log.Info("ended session a: its\nowner <3>is gone")
		log.With("session", "x").Warn("w", "err", "e\n2")
		log.Error("bad")
	}
	want := "<6>ended session a: its owner <3>is gone\n<4>w (session x): e 2\n<3>bad\n" +
		"sessionbox: ended session a: its owner <3>is gone\nsessionbox: w (session x): e 2\nsessionbox: bad\n"
	if diff := cmp.Diff(want, b.String()); diff != "" {
		t.Errorf("-want +got:\n%s", diff)
	}
}
