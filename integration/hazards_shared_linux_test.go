package integration_test

import (
	"encoding/json"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"github.com/sessionbox/sessionbox/pkg/session"
)

// TestSharedServerFoundedInside is H8: the first session starts a server that the
// second one uses. Closing the second leaves it alone; closing the founder ends it,
// with the other's work, and says so.
func TestSharedServerFoundedInside(t *testing.T) {
	r := newRig(t)
	r.technique("E24")
	founder, user := r.payloads("founder"), r.payloads("user")
	socket := filepath.Join(r.home, "shared")
	a, b := r.open("h8-founder"), r.open("h8-user")
	inTmux := func(id string, p payloads) {
		r.exec(id, "tmux", "-S", socket, "-f", "/dev/null", "new-session", "-d",
			"exec "+strings.Join(p.argv("payload"), " ")).must(t, 0, "tmux")
		p.await(1)
	}
	inTmux(a, founder)
	inTmux(b, user)

	receipt := r.closed(b, graceFlags()...)
	user.ticking()
	founder.ticking()
	for id := range recordedIn(user.dir) {
		if box, stray := names(receipt, id); box || stray {
			t.Errorf("closing the user of a shared server claims %v, which is in the founder's box", id)
		}
	}
	receipt = r.closed(a, graceFlags()...)
	for _, p := range []payloads{founder, user} {
		p.stopped()
		for id := range recordedIn(p.dir) {
			if box, _ := names(receipt, id); !box {
				t.Errorf("closing the founder ended %v in silence", id)
			}
		}
	}
	server := false
	for _, p := range receipt.Processes {
		server = server || strings.HasPrefix(p.Comm, "tmux")
	}
	if !server {
		t.Errorf("the receipt does not name the tmux server: %+v", receipt.Processes)
	}
}

// TestNameIsHeld is H9, first half: a second open of the same name is refused, with
// the holder in the answer, and harms nothing.
func TestNameIsHeld(t *testing.T) {
	r := newRig(t)
	p := r.payloads("payload")
	id := r.open("h9")
	r.detach(id, p.argv("payload")...)
	p.await(1)
	o := r.run("open", "--name", "h9", "--backend", r.box, "--json").must(t, 7, "second open")
	var e struct {
		Error struct {
			Code, Message, Hint, Session string
		}
	}
	if err := json.Unmarshal(o.stderr, &e); err != nil || e.Error.Code == "" || e.Error.Message == "" {
		t.Errorf("the error is not one line of JSON: %v: %s", err, o.stderr)
	}
	p.ticking()
	if _, ok := r.listed(id); !ok {
		t.Error("the first session is gone")
	}
	r.closed(id, graceFlags()...)
	p.stopped()
}

// nested opens a session from inside another and puts a payload into each.
func nested(r *rig, name string) (parent, child string, outer, inner payloads) {
	r.t.Helper()
	parent = r.open(name)
	outer, inner = r.payloads(name+"-outer"), r.payloads(name+"-inner")
	r.detach(parent, outer.argv("payload")...)
	child = r.exec(parent, bin(), "open", "--name", name+"-child").must(r.t, 0, "open inside a session").text()
	r.detach(child, inner.argv("E05")...)
	outer.await(1)
	inner.await(1)
	return parent, child, outer, inner
}

// TestChildCloses is H9, second half: closing a session inside another never touches
// the one around it.
func TestChildCloses(t *testing.T) {
	r := newRig(t)
	parent, child, outer, inner := nested(r, "h9a")
	if i, _ := r.listed(child); i.Parent != parent {
		t.Errorf("the parent of the inner session is %q, want %s", i.Parent, parent)
	}
	r.closed(child, graceFlags()...)
	inner.stopped()
	outer.ticking()
	r.closed(parent, graceFlags()...)
	outer.stopped()
}

// TestParentCloses: closing the outer session closes the inner one, with a receipt of
// its own.
func TestParentCloses(t *testing.T) {
	r := newRig(t)
	parent, child, outer, inner := nested(r, "h9b")
	receipt := r.closed(parent, graceFlags()...)
	outer.stopped()
	inner.stopped()
	found := false
	for _, n := range receipt.Nested {
		found = found || n.ID == child
	}
	if !found {
		t.Errorf("the receipt of the outer session does not hold the inner one's: %+v", receipt.Nested)
	}
	if i, ok := r.listed(child); ok {
		t.Errorf("the inner session is still listed as %s", i.State)
	}
}

// TestParentAndChildClose: both at once, by two callers. Each must come to an end, and
// nothing may be left.
func TestParentAndChildClose(t *testing.T) {
	r := newRig(t)
	parent, child, outer, inner := nested(r, "h9c")
	closing := []*running{
		r.start(bin(), "close", "--grace", "1s", parent),
		r.start(bin(), "close", "--grace", "1s", child),
		r.start(bin(), "close", "--now", parent),
	}
	for _, c := range closing {
		// The child's may come when the parent's has taken it already: no such session.
		if o := c.wait(); o.code != 0 && o.code != 3 {
			t.Errorf("%q: exit code %d: %s", c.cmd.Args, o.code, o.stderr)
		}
	}
	outer.stopped()
	inner.stopped()
	for _, id := range []string{parent, child} {
		if _, ok := r.listed(id); ok {
			t.Errorf("session %s is still listed", id)
		}
	}
}

// TestKeepMark is H10 for what left the box: SESSIONBOX_KEEP=1 in its environment is
// the user's word that it stays.
func TestKeepMark(t *testing.T) {
	r := newRig(t)
	p := r.payloads("kept")
	id := r.open("h10")
	r.exec(id, append([]string{"/usr/bin/env", session.EnvKeep + "=1"}, p.argv("E28b", "--out-cgroup", outCgroup(t))...)...).must(t, 0, "exec")
	p.await(1)
	p.ticking()
	receipt := r.closed(id, graceFlags()...)
	for s := range recordedIn(p.dir) {
		if box, stray := names(receipt, s); box || stray {
			t.Errorf("the receipt claims %v, which asked to be kept", s)
		}
	}
	p.ticking()
}

// TestDaemonOfOthers is H11: a daemon started in one session works for another. The
// close of the customer ends neither it nor what it started; the close of its own
// session does.
func TestDaemonOfOthers(t *testing.T) {
	r := newRig(t)
	d, work := r.payloads("daemon"), r.payloads("work")
	socket := filepath.Join(r.home, "d.sock")
	host, customer := r.open("h11-host"), r.open("h11-customer")
	r.detach(host, d.argv("daemon", "--socket", socket)...)
	d.await(1)
	eventually(t, "socket", func() bool { _, err := os.Stat(socket); return err == nil })
	r.exec(customer, work.argv("E30", "--socket", socket)...).must(t, 0, "ask the daemon")
	work.await(1)
	r.closed(customer, graceFlags()...)
	d.ticking()
	work.ticking()
	r.closed(host, graceFlags()...)
	d.stopped()
	work.stopped()
}

// connected founds a daemon in a session and gives it a client outside.
func connected(r *rig, name string) (id string, server payloads, client *canary) {
	r.t.Helper()
	server = r.payloads("server")
	socket := filepath.Join(r.home, name+".sock")
	id = r.open(name)
	r.detach(id, server.argv("daemon", "--socket", socket)...)
	server.await(1)
	eventually(r.t, "socket", func() bool { _, err := os.Stat(socket); return err == nil })
	client = r.canaryWith("client", syscall.SysProcAttr{}, escape(), "--socket", socket)
	return id, server, client
}

func servedBy(all []session.Served, comm string) *session.Served {
	for i := range all {
		if len(all[i].Clients) > 0 && all[i].Clients[0].Comm == comm {
			return &all[i]
		}
	}
	return nil
}

// TestServesOthers is H8 where it can be told: somebody outside is connected to a daemon
// that was founded in the session. It is spared, with all that it started, in a session
// of its own; --include ends it.
func TestServesOthers(t *testing.T) {
	r := newRig(t)
	id, server, client := connected(r, "h8-served")
	other := r.payloads("other")
	r.detach(id, other.argv("payload")...)
	other.await(1)
	eventually(t, "inspect tells whom it serves", func() bool { return servedBy(r.inspect(id).Served, "escape") != nil })
	receipt := r.closed(id, graceFlags()...)
	other.stopped()
	server.ticking()
	s := servedBy(receipt.Served, "escape")
	if s == nil || !s.Spared || s.In == "" || s.Clients[0].PID != client.id.pid {
		t.Fatalf("the receipt says %+v", receipt.Served)
	}
	kept, ok := r.listed(s.In)
	if !ok || !strings.HasPrefix(kept.Name, "h8-served.kept-") {
		t.Errorf("it is in %+v", kept)
	}
	// What was kept ends with its own close, whoever is connected.
	r.closed(s.In, graceFlags()...)
	server.stopped()

	id, server, _ = connected(r, "h8-included")
	eventually(t, "inspect tells whom it serves", func() bool { return servedBy(r.inspect(id).Served, "escape") != nil })
	receipt = r.closed(id, append(graceFlags(), "--include")...)
	server.stopped()
	if s := servedBy(receipt.Served, "escape"); s == nil || s.Spared {
		t.Errorf("the receipt says %+v", receipt.Served)
	}
}

// TestServesOwner: a harness that is connected to what it had started in a session wants
// it ended when it closes the session, unless it says otherwise.
func TestServesOwner(t *testing.T) {
	r := newRig(t)
	for flag, lives := range map[string]bool{"": false, "--spare": true} {
		server := r.payloads("server")
		socket := filepath.Join(r.home, "o"+flag+".sock")
		id := r.open("h8-owner" + flag)
		r.detach(id, server.argv("daemon", "--socket", socket)...)
		server.await(1)
		eventually(t, "socket", func() bool { _, err := os.Stat(socket); return err == nil })
		c, err := net.Dial("unix", socket) // we start the command that closes
		if err != nil {
			t.Fatal(err)
		}
		eventually(t, "the connection", func() bool { return len(r.inspect(id).Served) == 1 })
		flags := graceFlags()
		if flag != "" {
			flags = append(flags, flag)
		}
		receipt := r.closed(id, flags...)
		if len(receipt.Served) != 1 || receipt.Served[0].Spared != lives || !receipt.Served[0].Clients[0].Owner {
			t.Errorf("%q: the receipt says %+v", flag, receipt.Served)
		}
		if lives {
			server.ticking()
			r.closed(receipt.Served[0].In, graceFlags()...)
		}
		server.stopped()
		c.Close()
	}
}

// TestServesAsked: at a terminal the close asks, and does what it is told.
func TestServesAsked(t *testing.T) {
	r := newRig(t)
	for answer, lives := range map[string]bool{"e": false, "": true} {
		id, server, _ := connected(r, "h8-asked"+answer)
		eventually(t, "inspect tells whom it serves", func() bool { return servedBy(r.inspect(id).Served, "escape") != nil })
		p := r.pane(120, 20, bin(), "close", "--grace", "1s", id)
		p.sees("serves escape (")
		p.sees("[Spare/end]")
		if answer != "" {
			p.keys(answer)
		}
		p.keys("Enter")
		p.exits(t, 0)
		if !lives {
			server.stopped()
			continue
		}
		server.ticking()
		kept := ""
		for _, i := range r.list() {
			if strings.HasPrefix(i.Name, "h8-asked.kept-") {
				kept = i.ID
			}
		}
		r.closed(kept, graceFlags()...)
		server.stopped()
	}
}

// serves starts a daemon in a session, and gives its socket.
func (r *rig) serves(id, name string) (server payloads, socket string) {
	r.t.Helper()
	server, socket = r.payloads(name), filepath.Join(r.home, name+".sock")
	r.detach(id, server.argv("daemon", "--socket", socket)...)
	server.await(1)
	eventually(r.t, "socket", func() bool { _, err := os.Stat(socket); return err == nil })
	return server, socket
}

// calls has a client of a daemon run in a session.
func (r *rig) calls(id, name, socket string, before ...string) payloads {
	r.t.Helper()
	client := r.payloads(name)
	r.detach(id, append(before, client.argv("client", "--socket", socket)...)...)
	client.await(1)
	client.ticking()
	return client
}

// TestServesAround: who ends with the session around another, or in one beside it there, is
// nobody that a daemon in that other could be spared for.
func TestServesAround(t *testing.T) {
	for _, shims := range []string{"false", "true"} { // with them, the inner one is closed last
		for _, how := range []string{"", "--spare"} {
			t.Run("shims="+shims+how, func(t *testing.T) {
				r := newRig(t)
				r.env = append(r.env, "SESSIONBOX_SHIMS="+shims)
				outer := r.open("around")
				inner := r.exec(outer, bin(), "open", "--name", "around-inner").must(t, 0, "open inside a session").text()
				beside := r.exec(outer, bin(), "open", "--name", "around-beside").must(t, 0, "open inside a session").text()
				server, socket := r.serves(inner, "server")
				second, another := r.serves(inner, "second")
				clients := []payloads{r.calls(outer, "client", socket), r.calls(beside, "client-beside", another)}
				eventually(t, "the connections", func() bool { return len(r.inspect(inner).Served) == 2 })
				flags := graceFlags()
				if how != "" {
					flags = append(flags, how)
				}
				r.closed(outer, flags...)
				for _, p := range append(clients, server, second) {
					p.stopped()
				}
				r.nothing("after the close")
			})
		}
	}
}

// TestServesOutsideAround: somebody outside of both is one to spare a daemon for.
func TestServesOutsideAround(t *testing.T) {
	r := newRig(t)
	outer := r.open("around")
	inner := r.exec(outer, bin(), "open", "--name", "around-inner").must(t, 0, "open inside a session").text()
	server, socket := r.serves(inner, "server")
	second, another := r.serves(inner, "second")
	within := r.calls(outer, "client", another)
	client := r.canaryWith("client", syscall.SysProcAttr{}, escape(), "--socket", socket)
	eventually(t, "the connections", func() bool { return len(r.inspect(inner).Served) == 2 })
	receipt := r.closed(outer, graceFlags()...)
	within.stopped()
	second.stopped()
	server.ticking()
	if len(receipt.Nested) != 1 {
		t.Fatalf("the receipt has the nested %+v", receipt.Nested)
	}
	s := servedBy(receipt.Nested[0].Served, "escape")
	if s == nil || len(receipt.Nested[0].Served) != 1 || !s.Spared || s.In == "" || s.Clients[0].PID != client.id.pid {
		t.Fatalf("the receipt says %+v", receipt.Nested[0].Served)
	}
	r.closed(s.In, graceFlags()...)
	server.stopped()
	r.nothing("after the close")
}

// TestServesOwnerAround: the owner of the session around another is on the side of who
// closes both.
func TestServesOwnerAround(t *testing.T) {
	r := newRig(t)
	outer := r.open("around")
	inner := r.exec(outer, bin(), "open", "--name", "around-inner").must(t, 0, "open inside a session").text()
	server, socket := r.serves(inner, "server")
	client := r.canaryWith("client", syscall.SysProcAttr{}, escape(), "--socket", socket)
	r.run("open", "--take-over", "--name", "around", "--backend", r.box, "--owner-pid", strconv.Itoa(client.id.pid)).must(t, 0, "open --take-over")
	eventually(t, "the connection", func() bool { return len(r.inspect(inner).Served) == 1 })
	receipt := r.closed(outer, graceFlags()...)
	server.stopped()
	if len(receipt.Nested) != 1 || len(receipt.Nested[0].Served) != 1 || receipt.Nested[0].Served[0].Spared || !receipt.Nested[0].Served[0].Clients[0].Owner {
		t.Errorf("the receipt says %+v", receipt.Nested)
	}
	r.nothing("after the close")
}

// TestServesClosedAlong: sessions that are closed at once are no reason to spare what they
// have of each other, in whatever order they end; who asks to be kept is.
func TestServesClosedAlong(t *testing.T) {
	r := newRig(t)
	for _, what := range []string{"named", "all", "kept"} {
		a, b := r.open("along-a-"+what), r.open("along-b-"+what)
		server, socket := r.serves(a, "server-"+what)
		other, otherSocket := r.serves(b, "other-"+what)
		var before []string
		if what == "kept" {
			before = []string{"env", session.EnvKeep + "=1"}
		}
		client := r.calls(b, "client-"+what, socket, before...)
		r.calls(a, "client-of-other-"+what, otherSocket)
		for _, id := range []string{a, b} {
			eventually(t, "the connections", func() bool { return len(r.inspect(id).Served) == 1 })
		}
		args := append([]string{"close", "--grace", "0"}, a, b)
		if what == "all" {
			args = []string{"close", "--grace", "0", "--all"}
		}
		r.run(args...).must(t, 0, "close")
		other.stopped()
		if what == "kept" {
			client.ticking()
			server.ticking()
			for _, i := range r.list() {
				if !strings.Contains(i.Name, ".kept-") {
					t.Errorf("%s is left", i.Name)
				}
				r.closed(i.ID, "--now")
			}
		}
		server.stopped()
		client.stopped()
		r.nothing("after the close")
	}
}

// TestServesKeptBeside: a daemon is spared for who is kept of a session beside it, though both
// are closed with the one around them.
func TestServesKeptBeside(t *testing.T) {
	r := newRig(t)
	outer := r.open("around")
	inner := r.exec(outer, bin(), "open", "--name", "around-inner").must(t, 0, "open inside a session").text()
	beside := r.exec(outer, bin(), "open", "--name", "around-beside").must(t, 0, "open inside a session").text()
	server, socket := r.serves(inner, "server")
	client := r.calls(beside, "client", socket, "env", session.EnvKeep+"=1")
	eventually(t, "the connection", func() bool { return len(r.inspect(inner).Served) == 1 })
	r.closed(outer, graceFlags()...)
	server.ticking()
	client.ticking()
	for _, kept := range r.list() {
		r.closed(kept.ID, "--now")
	}
	server.stopped()
	client.stopped()
	r.nothing("at the end")
}
