package integration_test

import (
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/sessionbox/sessionbox/pkg/session"
)

// The end of a session of which an engine holds something, when more goes wrong.

// keeps has the engine refuse to remove anything, until the function it gives is called.
func (e *engine) keeps() (undo func()) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.answer = func(w http.ResponseWriter, q *http.Request) bool {
		if q.Method == http.MethodDelete {
			w.WriteHeader(http.StatusInternalServerError)
		}
		return q.Method == http.MethodDelete
	}
	return func() {
		e.mu.Lock()
		defer e.mu.Unlock()
		e.answer = nil
	}
}

// of are the containers with a session's label.
func (e *engine) of(id string) (all []string) {
	entries, err := os.ReadDir(e.spool)
	if err != nil {
		e.r.t.Fatal(err)
	}
	for _, c := range entries {
		if !strings.HasPrefix(c.Name(), "new.") && labelsIn(e.args(c.Name()))["sessionbox"] == id {
			all = append(all, c.Name())
		}
	}
	return all
}

// TestHiredByStray: a process that has left the box calls docker on and on. When it has been
// found and ended, the engine is asked once more.
func TestHiredByStray(t *testing.T) {
	r := newRig(t)
	out := outCgroup(t)
	e := r.engine()
	for range 10 {
		id := r.open("caller", "--shims")
		r.detach(id, "/bin/sh", "-c", "echo $$ >"+out+"/cgroup.procs && while :; do docker run -d bb >/dev/null; sleep 0.02; done")
		eventually(t, "its first container", func() bool { return len(e.of(id)) > 0 })
		r.closed(id, "--now")
		if left := e.of(id); len(left) > 0 {
			t.Fatalf("the engine has %q still", left)
		}
	}
}

// TestHiredStateFull: a container cannot be removed, nor can anything be written down. The
// session around the one that it is of is not called closed for that.
func TestHiredStateFull(t *testing.T) {
	r := newRig(t)
	e := r.engine()
	state := r.smallState("nr_inodes=400")
	outer := r.open("full-outer")
	inner := r.exec(outer, bin(), "open", "--shims", "--name", "full-inner").must(t, 0, "open inside").text()
	made := r.exec(outer, bin(), "exec", inner, "--", "docker", "run", "bb").must(t, 0, "docker inside").text()
	undo := e.keeps()
	for n := 0; ; n++ {
		if err := os.WriteFile(filepath.Join(state, "filler-"+strconv.Itoa(n)), nil, 0o600); err != nil {
			break
		}
	}
	for _, id := range []string{inner, outer, outer} {
		receipt, o := r.close(id, "--now")
		o.must(t, 4, "close with a container that stays")
		if receipt.Clean() {
			t.Errorf("the receipt of %s names nothing that is left", receipt.Name)
		}
	}
	undo()
	r.closed(outer, "--now")
	if e.there(made) {
		t.Error("the container is left")
	}
}

// TestHiredRecordLost: the record is gone, and a container stays. The session is found for
// the next close, too.
func TestHiredRecordLost(t *testing.T) {
	for _, used := range []bool{false, true} {
		t.Run(fmt.Sprintf("used again %t", used), func(t *testing.T) { recordLost(t, used) })
	}
}

func recordLost(t *testing.T, used bool) {
	r := newRig(t)
	e := r.engine()
	p := r.payloads("box")
	id := r.open("lost", "--shims")
	made := e.called(id, "run", "bb")
	r.detach(id, p.argv("payload")...)
	p.await(1)
	r.loseRecord(id)
	if used {
		r.reconcile()
		r.exec(id, "true").must(t, 0, "exec true")
	}
	undo := e.keeps()
	for range 2 {
		receipt, o := r.close(id, "--now")
		o.must(t, 4, "close with a container that stays")
		if got, ok := fateOf(receipt, made); !ok || got.Fate != session.FateSurvived {
			t.Errorf("the receipt says of it: %+v", got)
		}
	}
	p.stopped()
	undo()
	if got, ok := fateOf(r.closed(id, "--now"), made); !ok || e.there(made) {
		t.Errorf("the container is there: %t, the receipt says %+v", e.there(made), got)
	}
}

// TestHiredBusGone: the manager cannot be reached, and would start a unit of the session
// again. That is not called closed before it has been told.
func TestHiredBusGone(t *testing.T) {
	r := newRig(t)
	if r.box != "systemd" {
		t.Skip("no manager makes the boxes here")
	}
	id, unit := r.open("busless", "--shims"), "sbx-"+tag()+".service"
	systemctl := func(verb string) string {
		return r.start("systemctl", append(userFlag(), verb, unit)...).wait().text()
	}
	r.exec(id, append(append([]string{"systemd-run"}, userFlag()...), "--unit="+unit, "-p", "Restart=always", "-p", "RestartSec=1", "sleep", "600")...).must(t, 0, "systemd-run")
	t.Cleanup(func() { systemctl("stop") })
	show := hideBus(t)
	receipt, o := r.close(id, "--now")
	o.must(t, 4, "close without the manager")
	if !slices.ContainsFunc(receipt.Units, func(u session.UnitInfo) bool { return u.Name == unit && u.Fate == session.FateSurvived }) {
		t.Errorf("the receipt says of its unit: %+v", receipt.Units)
	}
	show()
	eventually(t, "it is started again", func() bool { return systemctl("is-active") == "active" })
	r.closed(id, "--now")
	if got := systemctl("is-active"); got == "active" || got == "activating" {
		t.Errorf("after the close the unit is %s", got)
	}
	// What only the manager could clear away goes with the next session's close.
	r.closed(r.open("after"), "--now")
	r.nothing("with the bus back")
}

// podman puts a podman of ours first in the PATH behind the shims.
func (r *rig) podman(script string) {
	r.t.Helper()
	bin := filepath.Join(r.home, "pbin")
	if err := os.MkdirAll(bin, 0o755); err != nil {
		r.t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(bin, "podman"), []byte("#!/bin/sh\n"+script), 0o755); err != nil {
		r.t.Fatal(err)
	}
	r.env = append(r.env, "PATH="+bin+":"+os.Getenv("PATH"), "DOCKER_HOST=unix:///nonexistent")
}

// carriers are the processes with a session's cookie.
func carriers(t *testing.T, cookie string) (all []int) {
	t.Helper()
	pids, err := os.ReadDir("/proc")
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range pids {
		pid, err := strconv.Atoi(e.Name())
		if err != nil {
			continue
		}
		if env, err := os.ReadFile(filepath.Join("/proc", e.Name(), "environ")); err == nil && strings.Contains(string(env), session.EnvCookie+"="+cookie) {
			all = append(all, pid)
		}
	}
	return all
}

// TestHiredAsking: rootless podman leaves a process behind when it is called and there is none.
// That of the question that a close asks ends with it, is asked for once, and told of as nobody's.
func TestHiredAsking(t *testing.T) {
	r := newRig(t)
	pause, calls := filepath.Join(r.home, "pause"), filepath.Join(r.home, "calls")
	r.podman(`echo "$1" >>` + calls + `
readlink /proc/"$(cat ` + pause + ` 2>/dev/null)"/exe >/dev/null 2>&1 && exit
setsid sleep 987 >/dev/null 2>&1 </dev/null &
echo $! >` + pause + `
`)
	id := r.open("asking", "--shims")
	cookie := strings.TrimSpace(r.exec(id, "sh", "-c", "echo $SESSIONBOX_COOKIE").must(t, 0, "echo").text())
	r.exec(id, "podman", "run", "bb").must(t, 0, "podman run")
	if len(carriers(t, cookie)) == 0 {
		t.Fatal("nobody carries the cookie")
	}
	os.Remove(calls)
	receipt := r.closed(id, "--now")
	if left := carriers(t, cookie); len(left) > 0 {
		t.Errorf("left: %v", left)
	}
	if backend() != "lineage" && len(receipt.Strays) > 0 {
		t.Errorf("strays: %+v", receipt.Strays)
	}
	if b, _ := os.ReadFile(calls); strings.Count(string(b), "\n") > 12 {
		t.Errorf("podman was called %q", b)
	}
}

// TestHiredNever: what no engine, and no at, ever did for a session does not keep it from being
// closed.
func TestHiredNever(t *testing.T) {
	r := newRig(t)
	r.podman("echo 'cannot set up namespace' >&2; exit 125\n")
	for _, name := range []string{"at", "atq", "docker"} {
		if err := os.WriteFile(filepath.Join(r.home, "pbin", name), []byte("#!/bin/sh\necho 'You do not have permission to use it.' >&2; exit 1\n"), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	id := r.open("never", "--shims")
	r.exec(id, "podman", "pod", "create", "x").must(t, 125, "podman pod create")
	r.exec(id, "docker", "run", "--cidfile", filepath.Join(r.home, "own"), "bb").must(t, 1, "docker run")
	r.exec(id, "sh", "-c", "echo true | at now").must(t, 1, "at")
	if receipt := r.closed(id, "--now"); len(receipt.Containers)+len(receipt.Jobs) > 0 {
		t.Errorf("the receipt tells of %+v, %+v", receipt.Containers, receipt.Jobs)
	}
}

// TestHiredQueued: at did it once, and cannot be asked now.
func TestHiredQueued(t *testing.T) {
	r := newRig(t)
	r.podman("exit 125\n")
	refuses := filepath.Join(r.home, "refuses")
	for name, text := range map[string]string{"at": "cat >/dev/null", "atq": "! test -e " + refuses} {
		if err := os.WriteFile(filepath.Join(r.home, "pbin", name), []byte("#!/bin/sh\n"+text+"\n"), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	id := r.open("queued", "--shims")
	r.exec(id, "sh", "-c", "echo true | at now").must(t, 0, "at")
	if err := os.WriteFile(refuses, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	_, o := r.close(id, "--now")
	o.must(t, 4, "close without atq")
	if err := os.Remove(refuses); err != nil {
		t.Fatal(err)
	}
	if receipt := r.closed(id, "--now"); len(receipt.Jobs) > 0 {
		t.Errorf("the receipt tells of jobs that never were: %+v", receipt.Jobs)
	}
}

// engineInside is an engine as a command: it has what files in a directory say.
const engineInside = `
import http.server, json, os, socketserver, sys
spool = sys.argv[2]
class Engine(http.server.BaseHTTPRequestHandler):
    def log_message(self, *a): pass
    def address_string(self): return ""
    def answer(self, body, code=200):
        self.send_response(code); self.end_headers(); self.wfile.write(json.dumps(body).encode())
    def do_GET(self):
        if self.path.startswith("/containers/json"):
            self.answer([dict(Id=n, State="running", ImageID="i", Created=1, Labels=json.load(open(os.path.join(spool, n)))) for n in os.listdir(spool)])
        elif self.path == "/info": self.answer(dict(CgroupDriver="cgroupfs", CgroupVersion="2"))
        else: self.answer({})
    def do_POST(self): self.answer({})
    def do_DELETE(self): os.remove(os.path.join(spool, self.path.split("/")[2].split("?")[0])); self.answer({})
class Server(socketserver.ThreadingMixIn, socketserver.UnixStreamServer): pass
Server(sys.argv[1], Engine).serve_forever()
`

// TestHiredInside: an engine that runs in the session ends with it. What it has is removed
// before, and that it does not answer afterwards keeps nothing from being closed; unless it may
// have made something that no file tells of.
func TestHiredInside(t *testing.T) {
	need(t, "python3")
	r := newRig(t)
	spool, socket := filepath.Join(r.home, "ispool"), filepath.Join(r.home, "i.sock")
	if err := os.Mkdir(spool, 0o755); err != nil {
		t.Fatal(err)
	}
	r.podman("exit 125\n")
	script := `#!/bin/sh
l=; prev=
for a; do
	[ "$prev" != --label ] || l="$l${l:+,}\"${a%%=*}\":\"${a#*=}\""
	[ "$prev" != --cidfile ] || printf made >"$a"
	prev=$a
done
echo "{$l}" >` + spool + `/made
`
	if err := os.WriteFile(filepath.Join(r.home, "pbin", "docker"), []byte(script), 0o755); err != nil {
		t.Fatal(err)
	}
	r.env = append(r.env, "DOCKER_HOST=unix://"+socket)
	for _, how := range []string{"--now", "--grace=1s"} {
		id := r.open("inside", "--shims")
		r.detach(id, "python3", "-c", engineInside, socket, spool)
		eventually(t, "the engine", func() bool { _, err := os.Stat(socket); return err == nil })
		r.exec(id, "docker", "run", "bb").must(t, 0, "docker run")
		receipt := r.closed(id, how)
		if left, _ := os.ReadDir(spool); len(left) > 0 || len(receipt.Containers) != 1 {
			t.Errorf("%s: left: %v; the receipt says %+v", how, left, receipt.Containers)
		}
		os.Remove(socket)
	}
	id := r.open("inside", "--shims")
	r.detach(id, "python3", "-c", engineInside, socket, spool)
	eventually(t, "the engine", func() bool { _, err := os.Stat(socket); return err == nil })
	r.exec(id, "docker", "run", "--cidfile", filepath.Join(r.home, "own"), "bb").must(t, 0, "docker run")
	receipt, o := r.close(id, "--now", "--forget")
	o.must(t, 4, "close of what no file tells of")
	if left, _ := os.ReadDir(spool); len(left) > 0 || !receipt.Forgotten {
		t.Errorf("left: %v; the receipt says %+v", left, receipt.Containers)
	}
}

// TestHiredForgotten: an engine has gone for good. Who says so has the record dropped, and is
// told what may be left; while a process lives, that is not done.
func TestHiredForgotten(t *testing.T) {
	r := newRig(t)
	e := r.engine()
	id := r.open("forgotten", "--shims")
	c := e.called(id, "run", "bb")
	e.die()
	_, o := r.close(id, "--now")
	o.must(t, 4, "close without the engine")
	if !strings.Contains(string(o.stderr), "close --forget") {
		t.Errorf("the way out is not named: %s", o.stderr)
	}
	receipt, o := r.close(id, "--now", "--forget")
	o.must(t, 4, "close --forget")
	if got, ok := fateOf(receipt, c); !receipt.Forgotten || receipt.Clean() || !ok || got.Fate != session.FateSurvived {
		t.Errorf("the receipt: forgotten %t, clean %t, %+v", receipt.Forgotten, receipt.Clean(), got)
	}
	r.run("close", id).must(t, 3, "close of what is forgotten")
	r.nothing("then")
	// One that can be closed is not forgotten.
	if receipt := r.closed(r.open("forgotten"), "--forget"); receipt.Forgotten {
		t.Error("the receipt of a close says that it was forgotten")
	}
}
