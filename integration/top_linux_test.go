package integration_test

import (
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

var update = flag.Bool("update", false, "write the recordings")

// TestTopKeys: what the keys of top say is what is done to the sessions, and to
// nothing else.
func TestTopKeys(t *testing.T) {
	r := newRig(t)
	bird := r.canary()
	beat := r.payloads("beat")
	work, other := r.open("work"), r.open("zother")
	r.detach(work, beat.argv("payload")...)
	r.detach(work, "sleep", "301")
	r.detach(other, "sleep", "302")
	beat.ticking()

	p := r.pane(120, 30, bin(), "top", "--interval", "0.2")
	p.sees("2 sessions")
	p.sees("zother  sleep 302")
	p.keys("Enter") // opens work
	p.sees("▸ 2  sleep 301")

	p.keys("f")
	p.sees("froze work")
	if !r.inspect(work).Box.Frozen {
		t.Error("the key f did not freeze the session")
	}
	before := ticksIn(beat.dir)
	time.Sleep(500 * time.Millisecond)
	if after := ticksIn(beat.dir); after != before {
		t.Errorf("it counts on from %d to %d", before, after)
	}
	p.keys("t")
	p.sees("thawed work")
	beat.ticking()

	// Its second task: refused first, then killed. The first one goes on.
	p.keys("Down", "Down", "K")
	p.sees("Kill task work/2? This ends 1 process")
	p.sees("sleep 301")
	p.keys("n")
	p.sees("nothing was ended")
	if i := r.inspect(work); i.Running != 2 {
		t.Fatalf("%d tasks run; want both", i.Running)
	}
	p.keys("K")
	p.sees("Kill task work/2?")
	p.keys("y")
	p.sees("killed work/2")
	if i := r.inspect(work); i.Running != 1 || task(t, i, 2).State != "killed" {
		t.Errorf("after the kill: %+v", i.Tasks)
	}
	beat.ticking()

	// The session, with the receipt.
	p.keys("g", "x")
	p.sees("Close session work? This ends")
	p.sees("payload --dir")
	if _, ok := r.listed(work); !ok {
		t.Fatal("it was closed before the answer")
	}
	p.keys("y")
	p.sees("closed work: ")
	p.sees("1 session ")
	if _, ok := r.listed(work); ok {
		t.Error("it is still listed")
	}
	beat.stopped()
	if i, ok := r.listed(other); !ok || i.Running != 1 {
		t.Errorf("the other session: %+v", i)
	}

	// Somebody else closes what is asked about.
	p.keys("x")
	p.sees("Close session zother?")
	r.closed(other)
	p.sees("No session is open")
	p.keys("q")
	p.exits(t, 0)
	bird.lives()
}

// TestTopEnds: Ctrl-C is an interrupt, a signal ends it, and both leave the terminal
// as it was.
func TestTopEnds(t *testing.T) {
	r := newRig(t)
	p := r.pane(80, 24, "sh", "-c", `stty -g >"$0.before"; "$1" top; code=$?; stty -g >"$0.after"; echo back; exit $code`, filepath.Join(r.home, "stty"), bin())
	p.sees("No session is open")
	p.keys("C-c")
	p.exits(t, 130)
	p.sees("back")
	before, _ := os.ReadFile(filepath.Join(r.home, "stty.before"))
	after, _ := os.ReadFile(filepath.Join(r.home, "stty.after"))
	if len(before) == 0 || string(before) != string(after) {
		t.Errorf("the terminal was %q and is %q", before, after)
	}

	p = r.pane(80, 24, "sh", "-c", `(until [ -e "$1" ]; do sleep 0.05; done; kill -TERM $$) & exec "$0" top`, bin(), filepath.Join(r.home, "now"))
	p.sees("No session is open")
	if err := os.WriteFile(filepath.Join(r.home, "now"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	p.exits(t, 143)
}

// TestTopResize: the screen follows the terminal.
func TestTopResize(t *testing.T) {
	r := newRig(t)
	r.open("work")
	p := r.pane(80, 24, bin(), "top", "--interval", "0.2")
	p.sees("work")
	for _, size := range [][2]string{{"200", "50"}, {"40", "5"}, {"100", "20"}} {
		p.tmux("resize-window", "-x", size[0], "-y", size[1])
		p.until("a screen of "+size[0], func(screen string) bool {
			return strings.Contains(screen, "work") && strings.Contains(screen, "LIMIT") == (size[0] == "200")
		})
	}
	p.keys("q")
	p.exits(t, 0)
}

// TestTopElsewhere: without a terminal it is a table, once.
func TestTopElsewhere(t *testing.T) {
	r := newRig(t)
	r.open("work")
	o := r.run("top").must(t, 0, "top")
	if out := o.text(); !strings.HasPrefix(out, "NAME") || strings.Count(out, "\n") != 1 || strings.Contains(out, "\x1b") {
		t.Errorf("got:\n%s", out)
	}
	if out := r.run("top", "--json").must(t, 0, "top --json").text(); !strings.HasPrefix(out, `{"schema":1,`) {
		t.Errorf("got:\n%s", out)
	}
}

// TestLookingIsNoActivity: a session that is watched becomes idle all the same.
func TestLookingIsNoActivity(t *testing.T) {
	r := newRig(t)
	id := r.open("work", "--idle-timeout", "1h")
	r.detach(id, "sleep", "300")
	p := r.pane(80, 24, bin(), "top", "--interval", "0.1")
	p.sees("sleep 300")
	p.keys("Enter", "Down", "Enter")
	idle := func() float64 {
		i := r.inspect(id)
		if i.Idle == nil {
			t.Fatalf("no idle time: %+v", i)
		}
		return i.Idle.IdleSeconds
	}
	first := idle()
	time.Sleep(time.Second)
	r.run("stats", "--no-stream").must(t, 0, "stats")
	if second := idle(); second < first+1 {
		t.Errorf("idle for %v s, then for %v s", first, second)
	}
	p.keys("q")
	p.exits(t, 0)
}

// TestRecordings are top and stats as they are seen, on terminals of two sizes with
// and without colour. Figures and process numbers, which vary, are masked.
func TestRecordings(t *testing.T) {
	if tierName() != "cgroup" {
		t.Skip("the recordings are of the cgroup tier")
	}
	r := newRig(t)
	r.open("agent")
	r.detach("agent", "sleep", "inf")
	r.exec("agent", "sh", "-c", "setsid sleep inf </dev/null &").must(t, 0, "exec")
	r.open("web")
	r.detach("web", "sh", "-c", "sleep inf & sleep inf")
	r.open("zcold")
	r.run("freeze", "zcold").must(t, 0, "freeze")
	eventually(t, "what was left over", func() bool { i, _ := r.listed("agent"); return i.Leftovers == 1 })

	for _, size := range [][2]int{{80, 24}, {200, 50}} {
		for _, color := range []string{"never", "always"} {
			name, flags := fmt.Sprintf("%dx%d", size[0], size[1]), []string(nil)
			if color == "always" {
				name, flags = name+"-colour", []string{"-e"}
			}
			p := r.pane(size[0], size[1], bin(), "top", "--interval", "0.2", "--color", color)
			p.sees("3 sessions")
			p.keys("Enter", "Down", "Enter")
			p.until("all figures", func(screen string) bool { // those of a process come with the second look
				return regexp.MustCompile(`(?m)^ +\d+  sleep inf.* \d[\d.]*%`).MatchString(screen)
			})
			record(t, "top-"+name, p.text(flags...))
			p.keys("x")
			p.sees("Close session")
			record(t, "close-"+name, p.text(flags...))
			p.keys("n", "q")
			p.exits(t, 0)

			p = r.pane(size[0], size[1], bin(), "stats", "--interval", "0.2", "--color", color)
			p.sees("* frozen")
			record(t, "stats-"+name, p.text(flags...))
			p.keys("C-c")
			p.exits(t, 130)
		}
	}
	for _, s := range []string{"agent", "web", "zcold"} {
		r.closed(s, "--now")
	}
}

// mask replaces what varies from run to run, in a way that keeps columns where they
// are; those of stats are as wide as what is in them, so that only one space is kept.
// Colours become words: {bold}.
func mask(screen string, table bool) string {
	screen = replace(screen, `\x1b\[([\d;]*)m`, func(m []string) string {
		return map[string]string{"": "{}", "0": "{}", "1": "{bold}", "2": "{dim}", "7": "{reverse}", "31": "{red}", "33": "{yellow}", "36": "{cyan}",
			"1;31": "{bold}{red}", "1;33": "{bold}{yellow}", "0;1": "{}{bold}", "0;2": "{}{dim}", "0;7": "{}{reverse}", "39": "", "49": ""}[m[1]]
	})
	var b strings.Builder
	for line := range strings.Lines(screen) {
		if at := regexp.MustCompile(`(\{\w*\})* *\d[\d.]*%`).FindStringIndex(line); at != nil { // the processor: figures begin
			tree, figures := pid(line[:at[0]]), line[at[0]:]
			figures = replace(figures, `\{\w*\}`, func([]string) string { return "" })
			figures = replace(figures, ` *[▁▂▃▄▅▆▇█]*[▁▂▃▄▅▆▇][▁▂▃▄▅▆▇█]*`, placed("~"))
			figures = replace(figures, `[█▒·]+`, func(m []string) string { return strings.Repeat("=", len([]rune(m[0]))) })
			figures = replace(figures, `\d[\d.]*([KMGT] host)( *)`, func(m []string) string {
				return "#" + strings.Repeat(" ", len(m[0])-len(m[1])-len(m[2])-1) + m[1] + m[2]
			})
			figures = replace(figures, ` +(\d[\d.]*[%BKMGTsmhd]?|-)`, placed("#"))
			figures = replace(figures, `cgroup|processes`, func([]string) string { return "source" })
			line = tree + figures
			if table {
				line = replace(line, ` +`, func([]string) string { return " " })
			}
		} else if table {
			line = replace(line, `(\{\w*\})* +(\{\w*\})*`, func(m []string) string { return m[1] + " " + m[2] })
		}
		line = replace(line, `^(  )\d{2,} `, func(m []string) string { return m[1] + "PID " })
		b.WriteString(strings.TrimRight(line, " \n") + "\n")
	}
	return strings.TrimRight(b.String(), "\n") + "\n"
}

// pid replaces the number of a process in the tree; the tree stays as wide.
func pid(tree string) string {
	return replace(tree, `^(.*? )(\d{2,})(  .*)$`, func(m []string) string { return m[1] + "PID" + m[3] + strings.Repeat(" ", max(0, len(m[2])-3)) })
}

func replace(text, pattern string, by func(groups []string) string) string {
	re := regexp.MustCompile(pattern)
	return re.ReplaceAllStringFunc(text, func(m string) string { return by(re.FindStringSubmatch(m)) })
}

// placed puts a sign at the right end of what it replaces.
func placed(sign string) func([]string) string {
	return func(m []string) string { return strings.Repeat(" ", max(0, len([]rune(m[0]))-1)) + sign }
}

func record(t *testing.T, name, screen string) {
	t.Helper()
	path, got := filepath.Join("testdata", "recordings", name+".txt"), mask(screen, strings.HasPrefix(name, "stats"))
	if *update {
		if err := os.WriteFile(path, []byte(got), 0o644); err != nil {
			t.Fatal(err)
		}
		return
	}
	want, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(string(want), got); diff != "" {
		t.Errorf("%s (-want +got):\n%s\nunmasked:\n%s", name, diff, screen)
	}
}
