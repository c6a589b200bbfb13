package integration_test

import (
	"encoding/json"
	"fmt"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/sessionbox/sessionbox/pkg/session"
)

// engine is a docker as far as a session has to do with it: a command that is first in
// the PATH behind the shims, and a daemon at a socket. What the command was called with
// is a file in spool, and as long as that is there so is the container. The real ones
// are in TestContainers.
type engine struct {
	r             *rig
	spool, socket string
	server        *http.Server

	mu sync.Mutex
	// answer, if set, decides itself.
	answer func(w http.ResponseWriter, r *http.Request) bool
	asked  []string
}

func (r *rig) engine() *engine {
	r.t.Helper()
	e := &engine{r: r, spool: filepath.Join(r.home, "spool"), socket: filepath.Join(r.home, "e.sock")}
	bin := filepath.Join(r.home, "ebin")
	for _, dir := range []string{e.spool, bin} {
		if err := os.Mkdir(dir, 0o755); err != nil {
			r.t.Fatal(err)
		}
	}
	script := `#!/bin/sh
printf '%s\n' "$@" >` + e.spool + `/new.$$ && mv ` + e.spool + `/new.$$ ` + e.spool + `/c$$
prev=
for a; do
	if [ "$prev" = --cidfile ]; then printf %s "c$$" >"$a"; fi
	prev=$a
done
echo "c$$"
`
	if err := os.WriteFile(filepath.Join(bin, "docker"), []byte(script), 0o755); err != nil {
		r.t.Fatal(err)
	}
	r.env = append(r.env, "PATH="+bin+":"+os.Getenv("PATH"), "DOCKER_HOST=unix://"+e.socket)
	e.listen()
	r.t.Cleanup(e.die)
	return e
}

func (e *engine) listen() {
	l, err := net.Listen("unix", e.socket)
	if err != nil {
		e.r.t.Fatal(err)
	}
	e.server = &http.Server{Handler: e}
	go e.server.Serve(l)
}

// die takes the daemon away; its socket goes, too.
func (e *engine) die() { e.server.Close() }

// put is a container that others made.
func (e *engine) put(id string, labels ...string) {
	var args []string
	for _, l := range labels {
		args = append(args, "--label", l)
	}
	if err := os.WriteFile(filepath.Join(e.spool, id), []byte(strings.Join(append(args, "bb"), "\n")), 0o644); err != nil {
		e.r.t.Fatal(err)
	}
}

// args are those that a container was made with.
func (e *engine) args(id string) []string {
	b, err := os.ReadFile(filepath.Join(e.spool, id))
	if err != nil {
		return nil
	}
	return strings.Split(strings.TrimSuffix(string(b), "\n"), "\n")
}

func (e *engine) there(id string) bool { return e.args(id) != nil }

func labelsIn(args []string) map[string]string {
	labels := map[string]string{}
	for i := 0; i+1 < len(args); i++ {
		if k, v, ok := strings.Cut(args[i+1], "="); ok && args[i] == "--label" {
			labels[k] = v
		}
	}
	return labels
}

func (e *engine) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	e.mu.Lock()
	answer := e.answer
	e.asked = append(e.asked, r.Method+" "+r.URL.Path)
	e.mu.Unlock()
	if answer != nil && answer(w, r) {
		return
	}
	part := strings.Split(strings.Trim(r.URL.Path, "/"), "/")
	switch {
	case r.URL.Path == "/containers/json":
		all := []any{}
		entries, _ := os.ReadDir(e.spool)
		for _, c := range entries {
			if args := e.args(c.Name()); args != nil && !strings.HasPrefix(c.Name(), "new.") {
				all = append(all, map[string]any{"Id": c.Name(), "Names": []string{"/n-" + c.Name()}, "Image": "bb", "ImageID": "i", "State": "running",
					"Labels": labelsIn(args), "Created": 1})
			}
		}
		_ = json.NewEncoder(w).Encode(all)
	case part[0] == "images":
		fmt.Fprint(w, "{}")
	case part[0] == "info":
		fmt.Fprint(w, `{"CgroupDriver":"systemd","CgroupVersion":"2"}`)
	case len(part) < 2 || !e.there(part[1]):
		w.WriteHeader(http.StatusNotFound)
		fmt.Fprint(w, `{"message":"No such container"}`)
	case r.Method == http.MethodDelete:
		os.Remove(filepath.Join(e.spool, part[1]))
		w.WriteHeader(http.StatusNoContent)
	case part[len(part)-1] == "json":
		_ = json.NewEncoder(w).Encode(map[string]any{"Id": part[1], "State": map[string]any{"Status": "exited"}})
	default:
		w.WriteHeader(http.StatusNoContent)
	}
}

// called calls docker in a session, and gives the container that it made.
func (e *engine) called(id string, argv ...string) string {
	e.r.t.Helper()
	return e.r.exec(id, append([]string{"docker"}, argv...)...).must(e.r.t, 0, "docker").text()
}

func fateOf(r session.Receipt, container string) (session.HiredContainer, bool) {
	i := slices.IndexFunc(r.Containers, func(c session.HiredContainer) bool { return c.ID == container })
	if i < 0 {
		return session.HiredContainer{}, false
	}
	return r.Containers[i], true
}

// TestHiredContainers: what a session had an engine start ends with it, and nothing
// else does, whatever it is labelled with.
func TestHiredContainers(t *testing.T) {
	r := newRig(t)
	e := r.engine()
	id := r.open("hired", "--shims")
	plain := e.called(id, "run", "-d", "bb", "sleep", "600")
	global := e.called(id, "--log-level", "error", "container", "create", "--name", "run", "bb")
	other := e.called(id, "ps", "-a")
	kept := r.exec(id, "env", session.EnvKeep+"=1", "docker", "run", "-d", "bb").must(t, 0, "docker for who is kept").text()
	// The labels of a container, as a commit and a run of what it made would copy them.
	var copied []string
	for k, v := range labelsIn(e.args(plain)) {
		copied = append(copied, k+"="+v)
	}
	e.put("copy", copied...)
	e.put("forged", "sessionbox="+id, "sessionbox.token=0123456789abcdef.0123456789abcdef0123456789abcdef")
	e.put("foreign")
	if args := e.args(plain); args[0] != "run" || args[1] != "--label" || !slices.Equal(args[len(args)-4:], []string{"-d", "bb", "sleep", "600"}) {
		t.Errorf("docker was called with %q", args)
	}
	if args := e.args(other); !slices.Equal(args, []string{"ps", "-a"}) {
		t.Errorf("docker ps was called with %q", args)
	}
	if args := e.args(kept); !slices.Equal(args, []string{"run", "-d", "bb"}) {
		t.Errorf("who is kept calls docker with %q", args)
	}
	if i := r.inspect(id); len(i.Containers) != 4 || !i.Shims {
		t.Errorf("inspect shows %+v", i.Containers)
	}
	receipt := r.closed(id, graceFlags()...)
	for c, want := range map[string]string{plain: session.FateEnded, global: session.FateEnded, "copy": session.FateSuspect, "forged": session.FateSuspect} {
		got, ok := fateOf(receipt, c)
		if !ok || got.Fate != want {
			t.Errorf("the receipt says of %s: %+v, want %s", c, got, want)
		}
		if want == session.FateEnded && (e.there(c) || backend() != "lineage" && !strings.HasPrefix(got.By, "task ")) {
			t.Errorf("%s is there: %t; by %q", c, e.there(c), got.By)
		}
		if want == session.FateSuspect && (!e.there(c) || got.Why == "") {
			t.Errorf("%s is there: %t, why: %q", c, e.there(c), got.Why)
		}
	}
	if _, ok := fateOf(receipt, "foreign"); ok || !e.there("foreign") || !e.there(other) || !e.there(kept) {
		t.Error("a container without our label was touched, or is told as the session's")
	}
	if _, err := os.Stat(filepath.Join(r.stateDir(), "sessions", id)); err == nil {
		t.Error("the shims are left")
	}
}

// TestHiredNested: a container belongs to the session that it was started in.
func TestHiredNested(t *testing.T) {
	r := newRig(t)
	e := r.engine()
	outer := r.open("hired-outer", "--shims")
	inner := r.exec(outer, bin(), "open", "--shims", "--name", "hired-inner").must(t, 0, "open inside").text()
	a, b := e.called(outer, "run", "bb"), r.exec(outer, bin(), "exec", inner, "--", "docker", "run", "bb").must(t, 0, "docker inside").text()
	if la, lb := labelsIn(e.args(a))["sessionbox"], labelsIn(e.args(b))["sessionbox"]; la != outer || lb != inner {
		t.Fatalf("labelled %q and %q, want %s and %s", la, lb, outer, inner)
	}
	r.closed(inner, graceFlags()...)
	if e.there(b) || !e.there(a) {
		t.Errorf("after the inner session's end its container is there: %t, the outer's: %t", e.there(b), e.there(a))
	}
	r.closed(outer, graceFlags()...)
	if e.there(a) {
		t.Error("the outer session's container is left")
	}
}

// TestHiredEngineGone: a dead engine, or one that hangs, holds nobody up: the box ends
// without it. The receipt says that it could not be asked, and names the container that may
// live: the record stays, and a close that reaches the engine ends it.
func TestHiredEngineGone(t *testing.T) {
	for name, kill := range map[string]func(*engine) (undo func()){
		"absent": func(e *engine) func() { e.die(); return e.listen },
		"refused": func(e *engine) func() {
			e.die()
			l, err := net.ListenUnix("unix", &net.UnixAddr{Name: e.socket, Net: "unix"})
			if err != nil {
				e.r.t.Fatal(err)
			}
			l.SetUnlinkOnClose(false)
			l.Close()
			return func() { os.Remove(e.socket); e.listen() }
		},
		"hangs": func(e *engine) func() {
			over := make(chan struct{})
			e.mu.Lock()
			e.answer = func(http.ResponseWriter, *http.Request) bool { <-over; return true }
			e.mu.Unlock()
			return func() { close(over); e.answer = nil }
		},
		"no engine": func(e *engine) func() {
			e.mu.Lock()
			e.answer = func(w http.ResponseWriter, _ *http.Request) bool { w.WriteHeader(500); return true }
			e.mu.Unlock()
			return func() { e.answer = nil }
		},
	} {
		t.Run(name, func(t *testing.T) {
			r := newRig(t)
			e := r.engine()
			p := r.payloads("box")
			id := r.open("hired", "--shims")
			c := e.called(id, "run", "bb")
			r.detach(id, p.argv("payload")...)
			p.await(1)
			undo := kill(e)
			began := time.Now()
			receipt, o := r.close(id, "--now")
			o.must(t, 4, "close without the engine")
			if took := time.Since(began); took > patience()/2 {
				t.Errorf("the close took %v", took)
			}
			p.stopped()
			if !slices.ContainsFunc(receipt.Notes, func(n string) bool { return strings.Contains(n, "could not ask") }) {
				t.Errorf("the receipt does not say that the engine could not be asked: %q", receipt.Notes)
			}
			if got, ok := fateOf(receipt, c); !ok || got.Fate != session.FateSurvived || !strings.Contains(got.Why, "does not answer") {
				t.Errorf("the receipt says %+v", got)
			}
			e.mu.Lock()
			undo()
			e.mu.Unlock()
			r.closed(id, "--now")
			if e.there(c) {
				t.Error("the container is left")
			}
		})
	}
}

// TestHiredUntold: what a session has made at an engine that is silent, and that no file of its
// own tells of, may live: the record stays until the engine says so. Of one that refused what
// it was asked for, nothing is left.
func TestHiredUntold(t *testing.T) {
	r := newRig(t)
	e := r.engine()
	id := r.open("untold", "--shims")
	c := e.called(id, "run", "--cidfile", filepath.Join(r.home, "own"), "bb")
	e.die()
	receipt, o := r.close(id, "--now")
	o.must(t, 4, "close without the engine")
	if len(receipt.Containers) != 1 || receipt.Containers[0].Fate != session.FateSurvived || receipt.Containers[0].At == "" {
		t.Errorf("the receipt says %+v", receipt.Containers)
	}
	if text := r.run("close", id, "--now").text() + string(r.run("inspect", id).stderr); !strings.Contains(text, e.socket) {
		t.Errorf("the engine is not named: %s", text)
	}
	e.listen()
	r.closed(id, "--now")
	if e.there(c) {
		t.Error("the container is left")
	}
	e.die()
	id = r.open("refused", "--shims")
	if err := os.WriteFile(filepath.Join(r.home, "ebin", "docker"), []byte("#!/bin/sh\necho 'Cannot connect to the Docker daemon' >&2\nexit 1\n"), 0o755); err != nil {
		t.Fatal(err)
	}
	r.exec(id, "docker", "run", "bb").must(t, 1, "docker without a daemon")
	r.closed(id, "--now")
}

// TestHiredListed: a list of many sessions asks an engine that does not answer once.
func TestHiredListed(t *testing.T) {
	r := newRig(t)
	e := r.engine()
	var ids []string
	for i := range 4 {
		ids = append(ids, r.open(fmt.Sprint("listed-", i), "--shims"))
		e.called(ids[i], "run", "bb")
	}
	e.mu.Lock()
	e.asked = nil
	e.answer = func(w http.ResponseWriter, _ *http.Request) bool { w.WriteHeader(500); return true }
	e.mu.Unlock()
	r.run("ls", "--json").must(t, 0, "ls")
	e.mu.Lock()
	asked := slices.DeleteFunc(slices.Clone(e.asked), func(q string) bool { return q != "GET /containers/json" })
	e.answer = nil
	e.mu.Unlock()
	if len(asked) != 1 {
		t.Errorf("a list of %d sessions asked the engine %d times", len(ids), len(asked))
	}
	for _, id := range ids {
		r.closed(id, "--now")
	}
}

// TestHiredNestedHangs: an engine that hangs does not keep the box around a session from
// being emptied, and is waited for once in a close.
func TestHiredNestedHangs(t *testing.T) {
	r := newRig(t)
	e := r.engine()
	p := r.payloads("box")
	outer := r.open("hired-outer", "--shims")
	inner := r.exec(outer, bin(), "open", "--shims", "--name", "hired-inner").must(t, 0, "open inside").text()
	made := r.exec(outer, bin(), "exec", inner, "--", "docker", "run", "bb").must(t, 0, "docker inside").text()
	r.detach(outer, p.argv("payload")...)
	p.await(1)
	over := make(chan struct{})
	var asked []int // how many of the box lived then
	e.mu.Lock()
	e.answer = func(_ http.ResponseWriter, q *http.Request) bool {
		e.mu.Lock()
		asked = append(asked, len(livingIn(p.dir)))
		hang := len(asked) == 1
		e.mu.Unlock()
		if hang {
			<-over
		}
		return hang
	}
	e.mu.Unlock()
	// The first question, in the grace, hangs. It is not asked again.
	_, o := r.close(outer, "--now")
	o.must(t, 4, "close with an engine that hangs")
	close(over)
	if len(asked) != 1 {
		t.Errorf("the engine that hung was asked %d times", len(asked))
	}
	p.stopped()
	e.mu.Lock()
	e.answer = nil
	e.mu.Unlock()
	if receipt := r.closed(outer, "--now"); len(receipt.Nested) != 1 || len(receipt.Nested[0].Containers) != 1 || e.there(made) {
		t.Errorf("the close when the engine answers says of the session inside: %+v; its container is there: %t", receipt.Nested, e.there(made))
	}
	// One that refuses is asked again, when all boxes are empty.
	asked = nil
	outer = r.open("hired-outer-2", "--shims")
	inner = r.exec(outer, bin(), "open", "--shims", "--name", "hired-inner-2").must(t, 0, "open inside").text()
	r.exec(outer, bin(), "exec", inner, "--", "docker", "run", "bb").must(t, 0, "docker inside")
	p = r.payloads("box-2")
	r.detach(outer, p.argv("payload")...)
	p.await(1)
	e.mu.Lock()
	e.answer = func(w http.ResponseWriter, q *http.Request) bool {
		e.mu.Lock()
		defer e.mu.Unlock()
		asked = append(asked, len(livingIn(p.dir)))
		w.WriteHeader(500)
		return true
	}
	e.mu.Unlock()
	_, o = r.close(outer, "--now")
	o.must(t, 4, "close with an engine that refuses")
	e.mu.Lock()
	e.answer = nil
	e.mu.Unlock()
	if len(asked) < 2 || slices.Max(asked[1:]) > 0 {
		t.Errorf("of the outer box lived, each time that the engine was asked: %v", asked)
	}
	r.closed(outer, "--now")
}

// TestHiredUnmarked: an engine that is asked by its command while a box is being emptied is
// not killed as a member of that: its mark is another.
func TestHiredUnmarked(t *testing.T) {
	r := newRig(t)
	bin, log := filepath.Join(r.home, "ebin"), filepath.Join(r.home, "log")
	if err := os.Mkdir(bin, 0o755); err != nil {
		t.Fatal(err)
	}
	// ps lasts until the box was emptied.
	p := r.payloads("box")
	script := `#!/bin/sh
case "$1" in
ps)
	echo "began${SESSIONBOX_COOKIE:+ as a member}${SESSIONBOX_ASKED:+ marked}" >>` + log + `
	while grep -qs "State:.[^Z]" /proc/"$(cat ` + r.home + `/pid)"/status; do sleep 0.02; done
	echo ended >>` + log + `
esac
`
	if err := os.WriteFile(filepath.Join(bin, "podman"), []byte(script), 0o755); err != nil {
		t.Fatal(err)
	}
	r.env = append(r.env, "PATH="+bin+":"+os.Getenv("PATH"), "DOCKER_HOST=unix:///nonexistent")
	id := r.open("hired", "--shims")
	r.exec(id, "podman", "run", "bb").must(t, 0, "podman run")
	r.detach(id, p.argv("payload")...)
	for who := range p.await(1) {
		if err := os.WriteFile(filepath.Join(r.home, "pid"), []byte(strconv.Itoa(who.pid)), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	receipt := r.closed(id, "--now")
	b, _ := os.ReadFile(log)
	if got := string(b); strings.Count(got, "\n") < 4 || strings.ReplaceAll(got, "began marked\nended\n", "") != "" {
		t.Errorf("podman was asked so: %s", got)
	}
	if len(receipt.Strays) > 0 || slices.ContainsFunc(receipt.Notes, func(n string) bool { return strings.Contains(n, "could not ask") }) {
		t.Errorf("strays %+v, notes %q", receipt.Strays, receipt.Notes)
	}
}

// TestHiredSurvives: an engine that does not end a container is told, with exit code 4,
// and asked again by the next close. The box is empty all the same.
func TestHiredSurvives(t *testing.T) {
	r := newRig(t)
	e := r.engine()
	p := r.payloads("box")
	id := r.open("hired", "--shims")
	c := e.called(id, "run", "bb")
	r.detach(id, p.argv("payload")...)
	p.await(1)
	e.mu.Lock()
	e.answer = func(w http.ResponseWriter, q *http.Request) bool {
		if q.Method == http.MethodDelete {
			w.WriteHeader(500)
			fmt.Fprint(w, `{"message":"device or resource busy"}`)
			return true
		}
		return false
	}
	e.mu.Unlock()
	receipt, o := r.close(id, graceFlags()...)
	o.must(t, 4, "close with a container that stays")
	p.stopped()
	if got, _ := fateOf(receipt, c); got.Fate != session.FateSurvived || !strings.Contains(got.Why, "busy") {
		t.Errorf("the receipt says %+v", got)
	}
	e.mu.Lock()
	e.answer = nil
	e.mu.Unlock()
	r.closed(id, graceFlags()...)
	if e.there(c) {
		t.Error("the container is left")
	}
}

// TestHiredGoneMeanwhile: a container that somebody removes between the list and the
// stop is no trouble.
func TestHiredGoneMeanwhile(t *testing.T) {
	r := newRig(t)
	e := r.engine()
	id := r.open("hired", "--shims")
	c := e.called(id, "run", "bb")
	e.mu.Lock()
	e.answer = func(_ http.ResponseWriter, q *http.Request) bool {
		if strings.HasSuffix(q.URL.Path, "/stop") || q.Method == http.MethodDelete {
			os.Remove(filepath.Join(e.spool, c))
		}
		return false
	}
	e.mu.Unlock()
	receipt := r.closed(id, graceFlags()...)
	if got, ok := fateOf(receipt, c); !ok || got.Fate == session.FateSurvived {
		t.Errorf("the receipt says %+v", got)
	}
}

// TestShimWithoutTool: what went away since the session was opened is not found, in so
// many words; what was never there has no shim.
func TestShimWithoutTool(t *testing.T) {
	r := newRig(t)
	r.engine()
	id := r.open("hired", "--shims")
	if err := os.Remove(filepath.Join(r.home, "ebin", "docker")); err != nil {
		t.Fatal(err)
	}
	// Whatever this machine has of that name is behind it in the PATH.
	o := r.exec(id, "sh", "-c", `d=$(command -v docker); PATH=$(dirname "$d") exec docker run bb`)
	if o.code != 127 || !strings.Contains(string(o.stderr), "docker: command not found") {
		t.Errorf("exit code %d: %s", o.code, o.stderr)
	}
	if o := r.exec(id, "sh", "-c", `ls "$SESSIONBOX_SHIM_DIR"/bin/`); strings.Contains(o.text(), "nerdctl") {
		t.Errorf("shims for what is not there: %s", o.text())
	}
}

// TestShimsWhere: run has shims, open has them if they are wanted, and a session without
// does not label for the one around it that it is independent of.
func TestShimsWhere(t *testing.T) {
	r := newRig(t)
	e := r.engine()
	label := func(o output) string { return labelsIn(e.args(o.must(t, 0, "docker").text()))["sessionbox"] }
	made := r.run("run", "-q", "--backend", r.box, "--", "docker", "create", "bb").must(t, 0, "run").text()
	if made == "" || e.there(made) {
		t.Errorf("the container %q of a run is left", made)
	}
	if l := label(r.run("run", "-q", "--no-shims", "--backend", r.box, "--", "docker", "create", "bb")); l != "" {
		t.Errorf("run --no-shims labels %q", l)
	}
	plain := r.open("plain")
	if l := label(r.exec(plain, "docker", "create", "bb")); l != "" {
		t.Errorf("a session without shims labels %q", l)
	}
	outer := r.open("shimmed", "--shims")
	o := r.exec(outer, bin(), "run", "-q", "--no-parent", "--shims=false", "--backend", r.box, "--", "docker", "create", "bb")
	if l := label(o); l != "" {
		t.Errorf("an independent session labels %q for the one around it", l)
	}
}
