package config

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/sessionbox/sessionbox/pkg/memlimit"
)

func write(t *testing.T, name, content string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), name)
	if err := os.WriteFile(path, []byte(content), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

func parsed(t *testing.T, text string) memlimit.Size {
	t.Helper()
	s, err := memlimit.ParseSize(text)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

var exact = cmp.Options{cmp.AllowUnexported(memlimit.Size{}), cmpopts.IgnoreFields(Config{}, "Files")}

func TestLoad(t *testing.T) {
	system := write(t, "system.toml", `
[slice]
memory_max  = "75%"
memory_high = "70%"
pids_max    = 4096

[session]
grace      = 10          # seconds
memory_max = "4G"
swap_max   = "max"
backend    = "systemd"
`)
	user := write(t, "user.toml", `
session.grace = "1m30s"
session.memory_max = 1073741824
session.pids_max = "10%"
slice.memory_high = "max"
`)
	got, err := Load(system, filepath.Join(t.TempDir(), "none.toml"), user)
	if err != nil {
		t.Fatal(err)
	}
	grace := 90 * time.Second
	want := Config{
		Slice: memlimit.Limits{MemoryMax: parsed(t, "75%"), MemoryHigh: memlimit.Max(), PidsMax: memlimit.Bytes(4096)},
		Session: Session{
			Limits: memlimit.Limits{MemoryMax: memlimit.Bytes(1 << 30), SwapMax: memlimit.Max(), PidsMax: parsed(t, "10%")},
			Grace:  &grace, Backend: "systemd",
		},
	}
	if diff := cmp.Diff(want, got, exact); diff != "" {
		t.Errorf("Load (-want +got):\n%s", diff)
	}
	if diff := cmp.Diff([]string{system, user}, got.Files); diff != "" {
		t.Errorf("Files (-want +got):\n%s", diff)
	}
}

func TestLoadNothing(t *testing.T) {
	for name, paths := range map[string][]string{
		"no paths": nil,
		"no files": {"/nowhere/config.toml", filepath.Join(t.TempDir(), "config.toml")},
		"empty":    {write(t, "a.toml", ""), write(t, "b.toml", "# nothing\n[slice]\n[session]\n")},
	} {
		if got, err := Load(paths...); err != nil || cmp.Diff(Config{}, got, exact) != "" {
			t.Errorf("%s: %+v, %v", name, got, err)
		}
	}
	zero := write(t, "zero.toml", "[session]\ngrace = 0\nswap_max = 0\n")
	got, err := Load(zero)
	if err != nil || got.Session.Grace == nil || *got.Session.Grace != 0 || got.Session.Limits.SwapMax != memlimit.Bytes(0) {
		t.Errorf("zero is a setting: %+v, %v", got, err)
	}
}

func TestLoadErrors(t *testing.T) {
	for name, c := range map[string]struct {
		toml string
		want []string
	}{
		"syntax":          {"[session]\ngrace = \n", []string{"line 2"}},
		"not closed":      {"\n\n[session\n", []string{"table name"}},
		"twice":           {"[slice]\npids_max = 1\npids_max = 2\n", []string{"line 3", "pids_max"}},
		"typo":            {"[session]\n\nmemroy_max = \"4G\"\n", []string{"line 3", `unknown key "session.memroy_max"`, `did you mean "session.memory_max"?`}},
		"other table":     {"[slice]\ngrace = 3\n", []string{"line 2", `unknown key "slice.grace"`, `did you mean "session.grace"?`}},
		"no table":        {"grace = 3\n", []string{"line 1", `unknown key "grace"`, `did you mean "session.grace"?`}},
		"table typo":      {"[sesion]\ngrace = 3\nbackend=\"auto\"\n", []string{"line 1", `unknown key "sesion"`, "known are slice.memory_max"}},
		"case":            {"[session]\nGrace_ = 3\n", []string{"line 2", `did you mean "session.grace"?`}},
		"far":             {"[session]\nfrobnicate = 3\n", []string{"line 2", `unknown key "session.frobnicate"; known are slice.memory_max, `}},
		"two":             {"[session]\nfoo = 1\nbar = 2\n", []string{"line 2", "line 3", "session.foo", "session.bar"}},
		"size":            {"[slice]\nmemory_max = \"lots\"\n", []string{"line 2", `"lots"`, "512M"}},
		"negative size":   {"[slice]\nmemory_max = -1\n", []string{"line 2", `"-1" is negative`}},
		"zero percent":    {"[slice]\nswap_max = \"0%\"\n", []string{"line 2", `"0%"`}},
		"empty size":      {"[slice]\nmemory_max = \"\"\n", []string{"line 2", "has no number"}},
		"boolean size":    {"[slice]\nmemory_max = true\n", []string{"line 2", `"true"`}},
		"list":            {"[slice]\nmemory_max = [1]\n", []string{"memory_max"}},
		"size of pids":    {"[slice]\npids_max = \"4K\"\n", []string{"line 2", `"4K"`, "whole number"}},
		"duration":        {"[session]\ngrace = \"soon\"\n", []string{"line 2", `"soon"`, "1h30m"}},
		"negative grace":  {"[session]\ngrace = -5\n", []string{"line 2", `"-5" is negative`}},
		"backend":         {"[session]\nbackend = \"docker\"\n", []string{"line 2", `"docker"`, "lineage"}},
		"high above max":  {"[session]\nmemory_max=\"1G\"\nmemory_high=\"2G\"\n", []string{"[session]", "memory_high (2G)"}},
		"a bare number":   {"[session]\nmemory_max = 4\n", []string{"did you mean 4G?"}},
		"table for value": {"[session.grace]\nx = 1\n", []string{"grace"}},
		"value for table": {"session = 3\n", []string{"session"}},
		"binary":          {"\x7fELF\x00\x00", []string{"line 1"}},
		"array of tables": {"[[session]]\ngrace = 1\n", []string{"session"}},
	} {
		path := write(t, "config.toml", c.toml)
		cfg, err := Load(path)
		if err == nil {
			t.Errorf("%s: loaded %+v", name, cfg)
			continue
		}
		for _, want := range append(c.want, path) {
			if !strings.Contains(err.Error(), want) {
				t.Errorf("%s: %v\ndoes not say %q", name, err, want)
			}
		}
	}
	a, b := write(t, "a.toml", "x = 1"), write(t, "b.toml", "y = 1")
	if _, err := Load(a, b); err == nil || !strings.Contains(err.Error(), a) || !strings.Contains(err.Error(), b) {
		t.Errorf("%v, want both files", err)
	}
	if _, err := Load(t.TempDir()); err == nil {
		t.Error("a directory was loaded")
	}
	if _, err := Load(write(t, "big.toml", strings.Repeat("#\n", maxFile))); err == nil {
		t.Error("a huge file was loaded")
	}
}

func TestPaths(t *testing.T) {
	for _, c := range []struct {
		xdg, home string
		want      []string
	}{
		{"/x", "/h", []string{"/etc/sessionbox/config.toml", "/x/sessionbox/config.toml"}},
		{"", "/h", []string{"/etc/sessionbox/config.toml", "/h/.config/sessionbox/config.toml"}},
		{"rel", "/h", []string{"/etc/sessionbox/config.toml", "/h/.config/sessionbox/config.toml"}},
		{"", "", []string{"/etc/sessionbox/config.toml"}},
	} {
		got := Paths(func(string) (string, bool) { return c.xdg, c.xdg != "" }, c.home)
		if diff := cmp.Diff(c.want, got); diff != "" {
			t.Errorf("%+v (-want +got):\n%s", c, diff)
		}
	}
}

func TestParseDuration(t *testing.T) {
	const day = 24 * time.Hour
	for in, want := range map[string]time.Duration{
		"0": 0, "90": 90 * time.Second, "1.5": 1500 * time.Millisecond, ".5": 500 * time.Millisecond, " 10s ": 10 * time.Second,
		"300ms": 300 * time.Millisecond, "1h30m": 90 * time.Minute, "2d": 2 * day, "1.5d": 36 * time.Hour, "1d12h": 36 * time.Hour,
		"0d": 0, "1000d": 1000 * day, "36500d": 36500 * day, "876000h": 36500 * day, "3153600000": 36500 * day, "36499d24h": 36500 * day,
	} {
		if got, err := ParseDuration(in); err != nil || got != want {
			t.Errorf("ParseDuration(%q) = %v, %v; want %v", in, got, err, want)
		}
	}
	for _, in := range []string{
		"", " ", "-1", "-1s", "-2d", "+1s", "x", "1x", "1h-30m", "d", "1dd", "1d-1h", "1d1d", "1e3", "NaN", "inf", "1..5", "1.5.5d", ".",
		"max", "1 h", "99999999h9", "99999999x",
	} {
		if got, err := ParseDuration(in); err == nil {
			t.Errorf("ParseDuration(%q) = %v", in, got)
		} else if !strings.Contains(err.Error(), `"`+in+`"`) {
			t.Errorf("ParseDuration(%q): %v does not quote it", in, err)
		}
	}
	// Whoever writes these means a number, not another form.
	for _, in := range []string{
		"36501d", "36500d1ns", "106752d", "106751d24h", "1d9223372036s", "3153600001", "9223372037", "99999999h", "99999999999999999999",
		"99999999999999999999d", "1h99999999999999999999m", "9999999999999h1.5s", strings.Repeat("9", 400) + "d",
	} {
		if got, err := ParseDuration(in); err == nil {
			t.Errorf("ParseDuration(%q) = %v", in, got)
		} else if !strings.Contains(err.Error(), "too long: the most is 36500 days") {
			t.Errorf("ParseDuration(%q): %v", in, err)
		}
	}
}

func FuzzParseDuration(f *testing.F) {
	for _, s := range []string{"90", "1.5", "2d3h", "-1", "1h30m", "36499d23h"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, in string) {
		if d, err := ParseDuration(in); err == nil && d < 0 {
			t.Fatalf("ParseDuration(%q) = %v", in, d)
		}
	})
}

func FuzzLoad(f *testing.F) {
	f.Add("[session]\ngrace = 3\n[slice]\nmemory_max=\"75%\"")
	f.Add("sesion.x.y = 1\n[slice]\n\"quoted\" = 2\n[[a]]\nb={c=1}")
	f.Fuzz(func(t *testing.T, text string) {
		var c Config
		if c.add([]byte(text)) == nil {
			c.validate()
		}
	})
}

func TestLoadMemory(t *testing.T) {
	system := write(t, "system.toml", "[memory]\nsteps = [\"warn\", \"hold\", \"freeze\"]\non_warn = \"logger x\"\nnotify = \"desktop\"\nwarn = \"on\"\nidle_after = \"5m\"\n")
	user := write(t, "user.toml", "[memory]\nsteps = [\"warn\"]\non_warn = \"\"\ntake_attached = true\n")
	got, err := Load(system, user)
	if err != nil {
		t.Fatal(err)
	}
	none, five, yes := memlimit.Steps(0), 5*time.Minute, true
	if diff := cmp.Diff(Memory{Warn: "on", Notify: "desktop", Steps: &none, IdleAfter: &five, TakeAttached: &yes}, got.Memory); diff != "" {
		t.Errorf("-want +got:\n%s", diff)
	}
	for text, want := range map[string]string{
		"[memory]\nsteps = [\"kill\"]\n":    "want warn, hold, hibernate, brake, freeze, close",
		"[memory]\nsteps = \"freeze\"\n":    "line 2",
		"[memory]\nwarn = true\n":           "line 2",
		"[memory]\nwarn = \"maybe\"\n":      "want on or off",
		"[memory]\nnotify = \"mail\"\n":     "want none or desktop",
		"[memory]\n\nonwarn = \"x\"\n":      `did you mean "memory.on_warn"?`,
		"[memory]\nidle_after = \"soon\"\n": "not a duration",
	} {
		if _, err := Load(write(t, "bad.toml", text)); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: %v, want %q", text, err, want)
		}
	}
}
