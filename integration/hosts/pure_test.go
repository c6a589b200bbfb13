package hosts

import (
	"bytes"
	"encoding/json"
	"os/exec"
	"strings"
	"testing"
)

func TestRecipeKeys(t *testing.T) {
	seen := map[string]bool{}
	for _, gen := range Generations() {
		r, err := gen.recipe()
		if err != nil {
			t.Fatal(err)
		}
		key, err := r.key()
		if err != nil || !strings.HasPrefix(key, string(gen)+"-") || seen[key] {
			t.Errorf("key of %s = %q, %v; want one of its own", gen, key, err)
		}
		seen[key] = true
		again, _ := r.key()
		r.Files[0].Mode = 0o600
		changed, _ := r.key()
		if again != key || changed == key {
			t.Errorf("%s: key %q, again %q, after a change %q", gen, key, again, changed)
		}
	}
	if _, err := Generation("buster").recipe(); err == nil {
		t.Error("an unknown generation has a recipe")
	}
}

// TestVariantKeys: the plain roots that are there stay valid, and nobody prunes
// another's.
func TestVariantKeys(t *testing.T) {
	r, err := Bookworm.recipe()
	if err != nil {
		t.Fatal(err)
	}
	plain, _ := r.key()
	v, err := r.with(Variant{Name: "peers", Packages: []string{"earlyoom"}, Commands: [][]string{{"true"}}})
	if err != nil {
		t.Fatal(err)
	}
	key, err := v.key()
	if err != nil || !strings.HasPrefix(key, "bookworm+peers-") || strings.HasPrefix(key, r.prefix()) || strings.HasPrefix(plain, v.prefix()) {
		t.Errorf("keys %q and %q, %v", plain, key, err)
	}
	if again, _ := r.key(); again != plain || len(r.Packages) == len(v.Packages) {
		t.Errorf("the plain recipe is another one now: %q, was %q", again, plain)
	}
	text, err := json.Marshal(r)
	if err != nil || strings.Contains(string(text), "Variant") {
		t.Errorf("the plain recipe hashes what it did not: %s, %v", text, err)
	}
	for _, bad := range []string{"", "a-b", "../x", "A"} {
		if _, err := r.with(Variant{Name: bad}); err == nil {
			t.Errorf("variant %q is taken", bad)
		}
	}
}

func TestCgroup2Mount(t *testing.T) {
	const hybrid = `31 23 0:28 / /sys/fs/cgroup rw - tmpfs tmpfs rw,mode=755
32 31 0:29 / /sys/fs/cgroup/cpu rw - cgroup cgroup rw,cpu
41 31 0:38 / /sys/fs/cgroup/my\040unified rw,relatime shared:9 master:2 - cgroup2 cgroup2 rw
`
	got, err := cgroup2Mount(strings.NewReader(hybrid))
	if err != nil || got != "/sys/fs/cgroup/my unified" {
		t.Errorf("cgroup2Mount = %q, %v", got, err)
	}
	if _, err := cgroup2Mount(strings.NewReader("31 23 0:28 / /x rw - tmpfs cgroup2 rw\n")); err == nil {
		t.Error("a tmpfs is taken for cgroup v2")
	}
}

func TestLeavingNames(t *testing.T) {
	id := identity{pidNS: "4026531836", pid: 17, start: 4242}
	got, ok := parseLeaving(id.name("ab-cd"))
	if !ok || got != id {
		t.Errorf("parseLeaving(%q) = %+v, %t", id.name("ab-cd"), got, ok)
	}
	for _, bad := range []string{"", "sbxtest-", "sbxtest-1-2-3", "sbxtest-ns-x-2-t", "sbxtest-ns-0-2-t", "sessionbox-ns-1-2-t"} {
		if NamesMaker(bad) {
			t.Errorf("%q is taken for one of ours", bad)
		}
	}
}

func TestParseStartTime(t *testing.T) {
	stat := "12 (a) b) S 1 12 12 0 -1 4194560 1 2 3 4 5 6 7 8 20 0 1 0 98765 100 200"
	if got, err := parseStartTime(stat); err != nil || got != 98765 {
		t.Errorf("parseStartTime = %d, %v; want 98765", got, err)
	}
	if _, err := parseStartTime("12 (a) S 1"); err == nil {
		t.Error("a short line has a start time")
	}
}

// What the script hands on is what it was given, whatever a shell makes of it.
func TestCommandScriptKeepsWords(t *testing.T) {
	words := []string{"printf", "%s|", "it's", "$HOME %n", "a  b", "", "\n", `\`}
	script := commandScript(SSH, words, []string{"V=x'y $z"}, "/")
	out, err := exec.Command("/bin/sh", "-c", script).CombinedOutput()
	if want := strings.Join(words[2:], "|") + "|"; err != nil || string(out) != want {
		t.Errorf("got %q, %v; want %q", out, err, want)
	}
	out, err = exec.Command("/bin/sh", "-c", commandScript(SSH, []string{"sh", "-c", `echo "$V"; pwd; exit 9`}, []string{"V=x'y $z"}, "/")).Output()
	if code, _ := ExitCode(err); code != 9 || string(out) != "x'y $z\n/\n" {
		t.Errorf("got %q, exit code %d", out, code)
	}
}

func TestGuestReader(t *testing.T) {
	steps := []Step{{Name: "a"}, {Name: "again", Reboot: true}, {Name: "b"}}
	full := "@@sbxtest up running\n@@sbxtest begin 0\nx\n\ny\n\n@@sbxtest end 0 3\n@@sbxtest reboot\n" +
		"@@sbxtest up degraded\r\n@@sbxtest begin 2\r\nno newline\n@@sbxtest end 2 0\n@@sbxtest done\n"
	var shown bytes.Buffer
	g := newGuestReader(steps, &shown)
	for i := range len(full) {
		if _, err := g.Write([]byte{full[i]}); err != nil {
			t.Fatal(err)
		}
	}
	if err := g.finish(); err != nil {
		t.Error(err)
	}
	if r := g.results[0]; r.Exit != 3 || r.Output != "x\n\ny\n" {
		t.Errorf("step a: %+v", r)
	}
	if r := g.results[2]; r.Exit != 0 || r.Output != "no newline" || g.state != "degraded" {
		t.Errorf("step b: %+v, system %s", r, g.state)
	}
	if shown.String() != "x\n\ny\nno newline\n" {
		t.Errorf("shown: %q", shown.String())
	}

	// Wherever it is cut short, that is a failure.
	for cut := range strings.Count(full, "\n") {
		g := newGuestReader(steps, &shown)
		lines := strings.SplitAfter(full, "\n")
		if _, err := g.Write([]byte(strings.Join(lines[:cut], ""))); err != nil {
			t.Fatal(err)
		}
		if g.finish() == nil {
			t.Errorf("a guest that ends after line %d passes", cut)
		}
	}
}
