package integration_test

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
)

// Names by which the suite is told where the recipes are, in hosts that have neither
// the sources nor Go.
const (
	envRecipes  = "SESSIONBOX_TEST_RECIPES"   // docs/recipes
	envRecipeGo = "SESSIONBOX_TEST_RECIPE_GO" // its Go recipe, built
)

// recipes is the directory of the recipes, as people find them.
func recipes(t *testing.T) string {
	t.Helper()
	if dir := os.Getenv(envRecipes); dir != "" {
		return dir
	}
	module, err := exec.Command("go", "list", "-m", "-f", "{{.Dir}}").Output()
	if err != nil {
		t.Fatalf("%s is not set and there is no go to find the module: %v", envRecipes, err)
	}
	return filepath.Join(strings.TrimSpace(string(module)), "docs", "recipes")
}

// recipe is a harness in some language. All speak the same words, see
// docs/recipes/README.md.
type recipe struct {
	argv func(r *rig) []string
	// blunt ones say less: not who holds a session, nor what was reconciled.
	blunt bool
	// cancel: it has a second way to break a command off.
	cancel bool
}

func allRecipes() map[string]recipe {
	return map[string]recipe{
		"node": {argv: func(r *rig) []string {
			return []string{need(r.t, "node"), filepath.Join(recipes(r.t), "node", "harness.mjs")}
		}},
		"python": {cancel: true, argv: func(r *rig) []string {
			// -B: no cache is left beside the sources.
			return []string{need(r.t, "python3"), "-B", filepath.Join(recipes(r.t), "python", "harness.py")}
		}},
		"shell": {blunt: true, argv: func(r *rig) []string {
			return []string{need(r.t, "bash"), filepath.Join(recipes(r.t), "shell", "harness.sh")}
		}},
		"go": {argv: func(r *rig) []string { return []string{r.goRecipe()} }},
	}
}

// goRecipe is the recipe in Go, built.
func (r *rig) goRecipe() string {
	r.t.Helper()
	if bin := os.Getenv(envRecipeGo); bin != "" {
		return bin
	}
	bin := filepath.Join(r.home, "harness")
	cmd := exec.Command("go", "build", "-o", bin, ".")
	cmd.Dir = filepath.Join(recipes(r.t), "go")
	cmd.Env = append(os.Environ(), "CGO_ENABLED=0")
	if out, err := cmd.CombinedOutput(); err != nil {
		r.t.Fatalf("go build %s: %v\n%s", cmd.Dir, err, out)
	}
	return bin
}

// recipeRun is a recipe at work.
type recipeRun struct {
	*running
	in   *os.File
	seen int // lines of its answers that were read
}

// recipe starts a recipe with a pipe for its tool calls.
func (r *rig) recipe(argv ...string) *recipeRun {
	r.t.Helper()
	r.recipeEnv()
	fifo := filepath.Join(r.home, "calls-"+tag())
	if err := syscall.Mkfifo(fifo, 0o600); err != nil {
		r.t.Fatal(err)
	}
	// For reading too, so that nobody waits for the other end.
	in, err := os.OpenFile(fifo, os.O_RDWR, 0)
	if err != nil {
		r.t.Fatal(err)
	}
	r.t.Cleanup(func() { in.Close() })
	p := r.start("sh", append([]string{"-c", `in=$1; shift; exec "$@" <"$in"`, "sh", fifo}, argv...)...)
	return &recipeRun{running: p, in: in}
}

// recipeEnv lets a recipe find the command under test, and gives it this tier's box.
func (r *rig) recipeEnv() {
	r.env = append(r.env, "PATH="+filepath.Dir(bin())+":"+os.Getenv("PATH"), "SESSIONBOX_BACKEND="+r.box, "SESSIONBOX_GRACE=1s")
}

// send sends a tool call.
func (h *recipeRun) send(call string) {
	h.r.t.Helper()
	if _, err := fmt.Fprintln(h.in, call); err != nil {
		h.r.t.Fatal(err)
	}
}

// call sends one and gives the answer.
func (h *recipeRun) call(call string) string {
	h.r.t.Helper()
	h.send(call)
	return h.answer("answer to " + call)
}

// answer is the next line that the harness prints.
func (h *recipeRun) answer(what string) string {
	h.r.t.Helper()
	line := ""
	eventually(h.r.t, what, func() bool {
		b, _ := os.ReadFile(h.out)
		lines := strings.SplitAfter(string(b), "\n")
		if len(lines) > h.seen && strings.HasSuffix(lines[h.seen], "\n") {
			line = strings.TrimSpace(lines[h.seen])
			h.seen++
			return true
		}
		if !h.id.alive() {
			h.r.t.Fatalf("%s: the harness has ended\n%s", what, h.show())
		}
		return false
	})
	return line
}

// opened waits for the harness to have its session, and gives the word it says then,
// the id and what it was told before.
func (h *recipeRun) opened() (word, id string, before []string) {
	h.r.t.Helper()
	for {
		line := h.answer("the session of a harness")
		var running string
		if n, _ := fmt.Sscanf(line, "%s %s running %s", &word, &id, &running); n == 3 && (word == "opened" || word == "resumed") {
			return word, id, before
		}
		before = append(before, line)
	}
}

// end tells the harness that there are no more calls, and gives the pids of its receipt.
func (h *recipeRun) end() []int {
	h.r.t.Helper()
	h.in.Close()
	o := h.wait().must(h.r.t, 0, "the end of a harness")
	lines := strings.Split(o.text(), "\n")
	last, ok := strings.CutPrefix(lines[len(lines)-1], "closed 0")
	if !ok {
		h.r.t.Fatalf("the last line is %q\n%s", lines[len(lines)-1], h.show())
	}
	var pids []int
	for word := range strings.FieldsSeq(last) {
		pid, err := strconv.Atoi(word)
		if err != nil {
			h.r.t.Fatal(err)
		}
		pids = append(pids, pid)
	}
	return pids
}

// shell is a command line for a payload.
func (p payloads) shell(what string) string { return strings.Join(p.argv(what), " ") }

// TestRecipes runs each harness of docs/recipes through the life of a session: commands,
// what they leave, a timeout, an abort, a second harness, the crash of the first and the
// clean end of the next one.
func TestRecipes(t *testing.T) {
	newRig(t)
	for name, rec := range allRecipes() {
		t.Run(name, func(t *testing.T) {
			r := newRig(t)
			bird := r.canary()
			argv := append(rec.argv(r), "work")
			h := r.recipe(argv...)
			word, id, _ := h.opened()
			if word != "opened" {
				t.Errorf("a new session is called %s", word)
			}
			if o := r.inspect(id).Owner; o == nil || o.PID != h.id.pid {
				t.Errorf("the owner is %+v, the harness %d", o, h.id.pid)
			}
			daemon := h.commands(rec)

			server := r.payloads("server")
			started := h.call("serve echo up; exec " + server.shell("payload"))
			n, ok := strings.CutPrefix(started, "started work/")
			if !ok {
				t.Errorf("serve: %s", started)
			}
			server.await(1)
			eventually(t, "the log of the server", func() bool { return h.call("log "+n) == "logged up" })
			var left, running int
			if got := h.call("left"); mustScan(t, got, "left %d running %d", &left, &running) && (left < 1 || running != 1) {
				t.Errorf("of a daemon and a server is told: %s", got)
			}

			second := r.recipe(argv...)
			o := second.wait().must(t, 7, "a second harness")
			if want := fmt.Sprintf("held %d running 1", h.id.pid); !rec.blunt && o.text() != want {
				t.Errorf("the second harness says %q, want %q", o.text(), want)
			}

			busy := r.payloads("busy")
			h.send("run 100 " + busy.shell("E05") + "; " + busy.shell("payload"))
			busy.await(2)
			h.die()
			daemon.ticking() // nobody watches: the next one to start sees to it
			server.ticking()
			next := r.recipe(argv...)
			word, nextID, before := next.opened()
			if word != "opened" || nextID == id {
				t.Errorf("after the crash: %s %s, before %s", word, nextID, id)
			}
			if !rec.blunt && !slices.Contains(before, "reconciled work ended") {
				t.Errorf("of the crash is told: %q", before)
			}
			for _, p := range []payloads{daemon, server, busy} {
				p.stopped()
			}

			last := r.payloads("last")
			if got := next.call("run 20 setsid " + last.shell("payload") + " & exit 0"); got != "exit 0" {
				t.Errorf("run: %s", got)
			}
			named(t, next, last)
			bird.lives()
			r.nothing("at the end")
		})
	}
}

// commands has a harness run commands, and gives the daemon that one of them left.
func (h *recipeRun) commands(rec recipe) (daemon payloads) {
	r, t := h.r, h.r.t
	t.Helper()
	if got := h.call("run 20 echo hello $SESSIONBOX_SESSION; echo talk >&2; exit 3"); got != "exit 3 hello work" {
		t.Errorf("run: %s", got)
	}
	if got := h.call("run 20 kill -9 $$"); got != "exit 137" {
		t.Errorf("run of one that ends by a signal: %s", got)
	}
	// It holds the command's output.
	daemon = r.payloads("daemon")
	if got := h.call("run 100 setsid " + daemon.shell("payload") + " & echo left it"); got != "exit 0 left it" {
		t.Errorf("run of one that leaves a daemon: %s", got)
	}
	daemon.await(1)
	ends := func(verb, call, want string) {
		t.Helper()
		p := r.payloads(verb)
		script := "setsid " + p.shell("payload") + " & " + p.shell("payload")
		call, deaf := strings.CutPrefix(call, "deaf ")
		if deaf {
			script = `trap "" TERM; ` + script
		}
		if got := h.call(call + " " + script); got != want {
			t.Errorf("%s: %s, want %s", verb, got, want)
		}
		if len(recordedIn(p.dir)) == 0 && tierName() != "vm" {
			t.Errorf("%s: nothing had begun", verb)
		}
		eventually(t, "the end of all of "+verb, func() bool { return len(livingIn(p.dir)) == 0 })
		p.stopped()
	}
	ends("timeout", "run 1", "timeout")
	ends("abort", "abort 1000", "aborted")
	ends("abort-deaf", "deaf abort 1000", "aborted")
	if rec.cancel {
		ends("cancel", "cancel 1000", "aborted")
	}
	daemon.ticking()
	return daemon
}

func mustScan(t *testing.T, text, format string, into ...any) bool {
	t.Helper()
	if _, err := fmt.Sscanf(text, format, into...); err != nil {
		t.Errorf("%q is not %q: %v", text, format, err)
		return false
	}
	return true
}

// named ends a harness, whose receipt has to name all payloads of a directory.
func named(t *testing.T, h *recipeRun, p payloads) {
	t.Helper()
	ids := p.await(1)
	pids := h.end()
	for id := range ids {
		if !slices.Contains(pids, id.pid) {
			t.Errorf("the receipt names %v, not %v", pids, id)
		}
	}
	p.stopped()
}

// TestRecipesResume: with `keep` a session outlives its harness, and the next one of
// that name goes on with what runs in it.
func TestRecipesResume(t *testing.T) {
	newRig(t)
	for name, rec := range allRecipes() {
		t.Run(name, func(t *testing.T) {
			r := newRig(t)
			argv := append(rec.argv(r), "work", "keep")
			h := r.recipe(argv...)
			_, id, _ := h.opened()
			server := r.payloads("server")
			h.call("serve exec " + server.shell("payload"))
			server.await(1)
			h.die()
			server.ticking()
			next := r.recipe(argv...)
			word, nextID, before := next.opened()
			if word != "resumed" || nextID != id {
				t.Errorf("the next harness says %s %s, want resumed %s", word, nextID, id)
			}
			if !rec.blunt && !slices.Contains(before, "reconciled work kept") {
				t.Errorf("of the crash is told: %q", before)
			}
			if o := r.inspect(id).Owner; o == nil || o.PID != next.id.pid {
				t.Errorf("the owner is %+v, the harness %d", o, next.id.pid)
			}
			server.ticking()
			if got := next.call("run 20 echo again"); got != "exit 0 again" {
				t.Errorf("run: %s", got)
			}
			named(t, next, server)
			r.nothing("at the end")
		})
	}
}

// TestRecipesGuard: with a guard, which each session of theirs starts, nobody has to come
// after a harness that was killed.
func TestRecipesGuard(t *testing.T) {
	newRig(t)
	for name, rec := range allRecipes() {
		t.Run(name, func(t *testing.T) {
			r := newRig(t)
			r.guarded()
			h := r.recipe(append(rec.argv(r), "work")...)
			h.opened()
			server, busy := r.payloads("server"), r.payloads("busy")
			if got := h.call("serve exec " + server.shell("payload")); got != "started work/1" {
				t.Fatalf("serve: %s", got)
			}
			h.send("run 100 " + busy.shell("E05") + "; " + busy.shell("payload"))
			server.await(1)
			busy.await(2)
			h.die()
			eventually(t, "the session to be closed", func() bool { return len(r.list()) == 0 })
			server.stopped()
			busy.stopped()
		})
	}
}
