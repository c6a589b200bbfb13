package integration_test

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/sessionbox/sessionbox/pkg/session"
)

// deed is one call of the command: alone, killed at some moment, or beside others.
type deed struct {
	args []string
	// ends are the sessions and tasks of which something may end by it.
	ends []string
	// touches are the sessions that it may change, opens the name of one it may open.
	touches []*soaked
	opens   string
	w       *work
	// done is told how it went when nothing came between.
	done func(output)
}

// want reports an exit code that is none of those.
func (s *soak) want(o output, what string, codes ...int) bool {
	s.t.Helper()
	if !slices.Contains(codes, o.code) {
		s.wrong("%s: exit code %d, want %v\nstdout: %s\nstderr: %s", what, o.code, codes, o.stdout, o.stderr)
		return false
	}
	return true
}

// name is that of the next session.
func (s *soak) name() string {
	s.names++
	return fmt.Sprintf("s%d", s.names)
}

// newOwner is a living process that owns sessions, an old one or one more.
func (s *soak) newOwner() *running {
	if o, ok := pick(s, s.owners); ok && s.rng.IntN(2) == 0 {
		return o
	}
	o := s.owner()
	s.owners = append(s.owners, o)
	return o
}

// policy gives flags for whom a session is and how long it may be idle.
func (s *soak) policy(b *soaked) (flags []string) {
	switch s.rng.IntN(5) {
	case 0:
	case 1:
		b.lease = true
		flags = append(flags, "--lease", "1h")
	case 2:
		b.lease, b.brief = true, true
		flags = append(flags, "--lease", "1s")
	default:
		b.owner = s.newOwner()
		flags = append(flags, "--owner-pid", b.owner.pid())
	}
	if len(flags) > 0 {
		b.generation = 1
		if b.keep = s.rng.IntN(3) == 0; b.keep {
			flags = append(flags, "--on-owner-exit", "keep")
		}
	}
	switch s.rng.IntN(8) {
	case 0:
		flags = append(flags, "--idle-timeout", "1h", "--idle-action", "close")
	case 1, 2:
		b.idle = []string{"warn", "freeze", "close"}[s.rng.IntN(3)]
		flags = append(flags, "--idle-timeout", "1s", "--idle-action", b.idle)
	}
	return flags
}

// opening opens a session, sometimes from inside another.
func (s *soak) opening() *deed {
	b := &soaked{name: s.name()}
	flags := append([]string{"--name", b.name, "--grace", "300ms", "--json"}, s.policy(b)...)
	d := &deed{opens: b.name}
	if around, ok := s.session(func(b *soaked) bool { return b.sound() && !s.isFrozen(b) && !s.policed(b) }); ok && s.rng.IntN(4) == 0 {
		b.parent = around.id
		d.args = append([]string{"exec", around.id, "--", bin(), "open"}, flags...)
	} else {
		d.args = append([]string{"open", "--backend", s.box}, flags...)
	}
	d.done = func(o output) {
		var i session.Info
		if !s.want(o, "open", 0) {
			return
		}
		if err := json.Unmarshal(o.stdout, &i); err != nil {
			s.wrong("open --json: %v: %s", err, o.stdout)
			return
		}
		if s.base == "" {
			s.base, _, _ = strings.Cut(i.Box.Path, "/sessionbox.slice")
			s.base += "/sessionbox.slice"
		}
		b.id = i.ID
		if i.Parent != b.parent {
			s.wrong("session %s has the parent %q, want %q", b.name, i.Parent, b.parent)
		}
		s.sessions = append(s.sessions, b)
	}
	return d
}

// policed says that a reconcile may close or freeze a session: its owner is gone, its
// lease or idle time may be over, or it is half closed already.
func (s *soak) policed(b *soaked) bool {
	for _, c := range s.around(b) {
		if c.half || c.unsure || c.brief || c.idle != "" || c.empty || c.ownerGone() {
			return true
		}
	}
	return false
}

// around gives a session and all that it is in.
func (s *soak) around(b *soaked) []*soaked {
	all := []*soaked{b}
	for _, c := range s.sessions {
		if c.id == b.parent && b.parent != "" {
			return append(all, s.around(c)...)
		}
	}
	return all
}

// quiet: nothing changes it but who is asked to.
func (s *soak) quiet(b *soaked) bool { return b.sound() && !s.policed(b) }

// any fits every session.
func anySession(*soaked) bool { return true }

// newWork makes a directory for payloads of a session.
func (s *soak) newWork(b *soaked, what string, n int) *work {
	s.works++
	return &work{payloads: s.payloads(fmt.Sprintf("w%d-%s", s.works, what)), home: b.id, want: max(1, n)}
}

// starting starts a payload in a session, in one of many ways.
func (s *soak) starting() *deed {
	b, ok := s.session(anySession)
	k, _ := pick(s, s.ways)
	if !ok || len(s.before) > 60 {
		return s.closing()
	}
	w := s.newWork(b, k.ID, k.Payloads)
	flags := []string{"--life", "1h"}
	if k.ID == "E28b" {
		w.out = true
		flags = append(flags, "--out-cgroup", os.Getenv(envOutside))
	}
	d := &deed{w: w, touches: []*soaked{b}}
	kept := s.rng.IntN(6) == 0
	detached := !k.RootExits || s.rng.IntN(2) == 0
	d.args = []string{"exec"}
	if detached {
		d.args = append(d.args, "-d")
	}
	if kept {
		d.args = append(d.args, "--keep")
		d.opens = b.name + ".kept-"
	}
	if s.rng.IntN(8) == 0 {
		d.args = append(d.args, "--timeout", "1h")
	}
	d.args = append(append(d.args, b.id, "--"), w.argv(k.ID, flags...)...)
	d.done = func(o output) {
		codes := []int{0}
		switch {
		case !b.sound() || s.policed(b):
			codes = []int{0, 125, 128 + 9}
		case s.isFrozen(b):
			codes = []int{125}
		case k.ID == "E07" && !detached:
			codes = []int{128 + 9}
		}
		if !s.want(o, strings.Join(d.args, " "), codes...) || o.code == 125 {
			w.rough = true // none of it is expected, and none forbidden
			b.unsure = b.unsure || o.code != 125
			return
		}
		b.unsure = b.unsure || b.idle != "" // it may have been frozen
		if kept {                           // under a name of its own
			w.rough, w.home = true, ""
			for _, i := range s.list() {
				if slices.Contains(i.KeptFrom, b.id) && strings.Contains(o.text(), i.Name) {
					w.rough, w.home = false, i.ID
				}
			}
			w.rough = w.rough || w.home == ""
		}
		s.await(w, strings.Join(d.args, " "))
	}
	return d
}

// await waits until payloads are up.
func (s *soak) await(w *work, what string) {
	s.t.Helper()
	if w.rough {
		return
	}
	for end := time.Now().Add(patience()); len(recordedIn(w.dir)) < w.want; time.Sleep(5 * time.Millisecond) {
		if !time.Now().After(end) {
			continue
		}
		// A guard may have closed the session meanwhile; whether it was to, settle judges.
		if w.rough = !slices.ContainsFunc(s.list(), func(i session.Info) bool { return i.ID == w.home }); !w.rough {
			s.wrong("%s: %d payloads are up, want %d", what, len(recordedIn(w.dir)), w.want)
		}
		return
	}
	// A respawner's first server, or a wrapper, ends when the others are up.
	time.Sleep(20 * time.Millisecond)
}

// running runs a short command.
func (s *soak) running() *deed {
	b, ok := s.session(anySession)
	if !ok {
		return s.opening()
	}
	d := &deed{args: []string{"exec", b.id, "--", "sh", "-c", "exit 3"}, touches: []*soaked{b}}
	frozen, sure := s.isFrozen(b), s.quiet(b)
	d.done = func(o output) {
		switch {
		case !sure:
			b.unsure = true
			s.want(o, "exec", 3, 125, 128+9)
		case frozen:
			s.want(o, "exec in a frozen session", 125)
		default:
			s.want(o, "exec", 3)
		}
	}
	return d
}

// stale acts for an owner that was taken over from.
func (s *soak) stale() *deed {
	b, ok := s.session(func(b *soaked) bool { return s.quiet(b) && b.generation > 1 })
	if !ok {
		return s.owning()
	}
	old := []string{"--generation", strconv.Itoa(1 + s.rng.IntN(b.generation-1))}
	d := &deed{}
	want := 7
	switch s.rng.IntN(3) {
	case 0:
		d.args = append([]string{"touch", b.id}, old...)
	case 1:
		d.args = append([]string{"close", "--now", b.id}, old...)
	default:
		d.args, want = append(append([]string{"exec", b.id}, old...), "--", "true"), 125
	}
	d.done = func(o output) { s.want(o, "for a former owner", want) }
	return d
}

// touching renews a lease.
func (s *soak) touching() *deed {
	b, ok := s.session(anySession)
	if !ok {
		return s.opening()
	}
	d := &deed{args: []string{"touch", b.id}, touches: []*soaked{b}}
	if b.generation > 0 {
		d.args = append(d.args, "--generation", strconv.Itoa(b.generation))
	}
	sure := s.quiet(b)
	d.done = func(o output) {
		if sure {
			s.want(o, "touch", 0)
		} else {
			b.unsure = true
		}
	}
	return d
}

// hasName: nobody else has its name, as one may who came when the record was lost.
func (s *soak) hasName(b *soaked) bool {
	for _, c := range s.sessions {
		if c != b && c.name == b.name {
			return false
		}
	}
	return b.name != ""
}

// owning attaches to a session, or takes it over.
func (s *soak) owning() *deed {
	b, ok := s.session(s.hasName)
	if !ok {
		return s.opening()
	}
	how := []string{"--attach", "--take-over"}[s.rng.IntN(2)]
	d := &deed{args: []string{"open", "--json", "--name", b.name, how}, touches: []*soaked{b}, opens: b.name, ends: s.endsWith(b)}
	var o *running
	if s.rng.IntN(4) == 0 {
		d.args = append(d.args, "--lease", "1h")
	} else {
		o = s.newOwner()
		d.args = append(d.args, "--owner-pid", o.pid())
	}
	sound := s.quiet(b) || b.sound() && b.idle == "" && !b.brief // a dead owner is no matter
	for _, c := range s.around(b)[1:] {
		sound = sound && s.quiet(c)
	}
	if sound {
		d.ends = nil
	}
	held := how == "--attach" && (b.owner != nil && b.owner.id.alive() && (o == nil || o.id != b.owner.id) || b.lease)
	same := b.owner != nil && o != nil && o.id == b.owner.id
	d.done = func(out output) {
		switch {
		case !sound:
			b.unsure = true
		case held:
			s.want(out, "attach to what another has", 7)
		case s.want(out, how, 0):
			if !same || how == "--take-over" {
				b.generation++
			}
			b.owner, b.lease, b.brief = o, o == nil, false
			if id := ""; json.Unmarshal(out.stdout, &struct {
				ID *string `json:"id"`
			}{&id}) != nil || id != b.id {
				s.wrong("%s %s gave session %s, want %s", how, b.name, id, b.id)
			}
		}
	}
	return d
}

// keeping moves a task to a session of its own.
func (s *soak) keeping() *deed {
	task, ok := pick(s, s.tasks())
	if !ok {
		return s.starting()
	}
	id, _, _ := strings.Cut(task, "/")
	i := slices.IndexFunc(s.sessions, func(b *soaked) bool { return b.id == id })
	if i < 0 {
		return s.starting()
	}
	b := s.sessions[i]
	d := &deed{args: []string{"keep", "--json", task}, opens: b.name + ".kept-"}
	if !b.sound() || s.policed(b) {
		d.touches = []*soaked{b}
	}
	sure, inFrozen := s.quiet(b), s.frozenAround(b)
	d.done = func(o output) {
		if inFrozen {
			s.want(o, "keep in a frozen session", 1)
			return
		}
		if !sure || !s.want(o, "keep "+task, 0) {
			return
		}
		for id, at := range s.before {
			if at.task != task {
				continue
			}
			b, _ := cgroupOf(id)
			if now := spotOf(at.w, b); now.task == task && id.alive() {
				s.wrong("payload %v is in %s after it was kept", id, task)
			}
		}
	}
	return d
}

// freezing stops or thaws a session.
func (s *soak) freezing() *deed {
	b, ok := s.session(func(b *soaked) bool { return b.frozen })
	verb := "thaw"
	if !ok || s.rng.IntN(3) == 0 {
		verb = "freeze"
		if b, ok = s.session(func(b *soaked) bool { return !s.isFrozen(b) }); !ok {
			return s.opening()
		}
	}
	d := &deed{args: []string{verb, b.id}, touches: []*soaked{b}}
	sure := s.quiet(b)
	d.done = func(o output) {
		b.unsure = b.unsure || !sure
		if !sure || !s.want(o, verb, 0) {
			return
		}
		b.frozen = verb == "freeze"
	}
	return d
}

// killing ends a task, or all tasks of a session.
func (s *soak) killing() *deed {
	if task, ok := pick(s, s.tasks()); ok && s.rng.IntN(4) > 0 {
		d := &deed{args: []string{"kill", task}, ends: []string{task}}
		d.done = func(o output) {
			if !s.want(o, "kill "+task, 0, 3) {
				return
			}
			for id, at := range s.census() {
				if _, was := s.before[id]; was && at.task == task && o.code == 0 && !at.w.rough {
					s.wrong("payload %v lives in %s, which was killed", id, task)
				}
			}
		}
		return d
	}
	b, ok := s.session(anySession)
	if !ok {
		return s.opening()
	}
	d := &deed{args: []string{"kill", b.id}, ends: []string{b.id}}
	codes := []int{0}
	if s.guard != nil && s.policed(b) { // it may close it first
		codes = append(codes, 3)
	}
	d.done = func(o output) { s.want(o, "kill", codes...) }
	return d
}

// closing closes a session, with those inside it.
func (s *soak) closing() *deed {
	b, ok := s.session(anySession)
	if !ok {
		return s.opening()
	}
	d := &deed{args: []string{"close", "--json", b.id}, ends: s.endsWith(b), touches: s.inside(b)}
	switch s.rng.IntN(4) {
	case 0:
		d.args = append(d.args, "--now")
	case 1:
		d.args = append(d.args, "--grace", "100ms")
	case 2: // from inside
		if s.quiet(b) && !s.isFrozen(b) {
			d.args = append([]string{"exec", b.id, "--", bin()}, d.args...)
		}
	}
	d.done = func(o output) {
		if !s.want(o, strings.Join(d.args, " "), 0) {
			b.unsure = true
			return
		}
		if receipt, err := decodeReceipt(o.stdout); err != nil || !receipt.Clean() || receipt.ID != b.id {
			s.wrong("close %s: %v: %s", b.id, err, o.stdout)
		}
		s.gone(b)
		if exists(filepath.Dir(s.sessionRecord(b.id))) {
			s.wrong("the record of %s is there after its close", b.id)
		}
	}
	return d
}

// reconciling does what the records ask for.
func (s *soak) reconciling() *deed {
	d := &deed{args: []string{"reconcile", "--json"}}
	dry := s.rng.IntN(4) == 0
	var due []*soaked
	for _, b := range s.sessions {
		if s.policed(b) || b.lost {
			d.touches = append(d.touches, b)
			if !dry && s.mayPolicyEnd(b) {
				d.ends = append(d.ends, s.endsWith(b)...)
			}
		}
		if b.sound() && b.ownerGone() && !b.keep || b.half {
			due = append(due, b)
		}
	}
	if dry {
		d.args = append(d.args, "--dry-run")
		d.touches = nil
		d.done = func(o output) { s.want(o, "reconcile --dry-run", 0) }
		return d
	}
	d.done = func(o output) {
		for _, b := range d.touches {
			b.unsure = true
		}
		if !s.want(o, "reconcile", 0) || s.guard != nil { // which may be at it
			return
		}
		for _, i := range s.list() {
			if slices.ContainsFunc(due, func(b *soaked) bool { return b.id == i.ID }) {
				s.wrong("session %s (%s) was to be closed by reconcile, which said\n%s", i.Name, i.ID, o.stdout)
			}
		}
	}
	return d
}

// mayPolicyEnd says whether a policy may close a session: a live command in front of
// somebody keeps it from being idle.
func (s *soak) mayPolicyEnd(b *soaked) bool {
	for _, c := range s.around(b) {
		if c.half || c.unsure || !c.keep && (c.brief || c.ownerGone()) {
			return true
		}
		if c.idle == "close" && !slices.ContainsFunc(s.calls, func(k *call) bool { return k.b == c && k.id.alive() && !c.lost }) {
			return true
		}
	}
	return false
}

// looking changes nothing.
func (s *soak) looking() *deed {
	args, codes := []string{"ls", "--json"}, []int{0}
	if b, ok := s.session(anySession); ok {
		args, _ = pick(s, [][]string{{"ls"}, {"ls", "-a"}, {"inspect", b.id}, {"ps", b.id}, {"tree"}, {"history"}, {"close", "--dry-run", b.id}, {"close", "--all", "--dry-run"}, {"events"}})
		if s.guard != nil && s.policed(b) { // it may be closing it at this moment
			codes = append(codes, 3)
		}
	}
	d := &deed{args: args}
	d.done = func(o output) { s.want(o, strings.Join(args, " "), codes...) }
	return d
}
