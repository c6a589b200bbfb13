package integration_test

import (
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"
)

// step does one thing and looks what became of it.
func (s *soak) step(n int) {
	s.t.Helper()
	s.steps = n
	s.ends = s.ends[:0]
	s.reap()
	s.beGuarded()
	switch s.rng.IntN(24) {
	case 0, 1:
		s.ownerDies()
	case 2:
		s.helperDies()
	case 3, 4:
		s.call()
	case 5:
		s.callDies()
	case 6:
		s.loseRecords()
	case 7:
		s.garbage()
	case 8, 9, 10, 11:
		s.crash(s.deed())
	case 12, 13, 14:
		s.together()
	case 15:
		s.guarding()
	default:
		s.do(s.deed())
	}
	s.check()
}

// beGuarded notes what a guard may do.
func (s *soak) beGuarded() {
	if s.guard == nil {
		return
	}
	if !s.guard.id.alive() {
		s.wrong("the guard has ended: %s", s.guard.show())
		s.guard.wait()
		s.guard = nil
		return
	}
	for _, b := range s.sessions {
		if s.policed(b) {
			b.unsure = true
			if s.mayPolicyEnd(b) {
				s.ends = append(s.ends, s.endsWith(b)...)
			}
		}
	}
}

// deed is a call at random.
func (s *soak) deed() *deed {
	if len(s.sessions) < 2 || len(s.sessions) < 7 && s.rng.IntN(5) == 0 {
		return s.opening()
	}
	deeds := []func() *deed{
		s.starting, s.starting, s.starting, s.starting, s.running, s.stale, s.touching, s.owning, s.owning,
		s.keeping, s.keeping, s.freezing, s.killing, s.closing, s.reconciling, s.looking,
	}
	if len(s.sessions) >= 7 {
		deeds = append(deeds, s.closing, s.closing, s.closing)
	}
	d, _ := pick(s, deeds)
	return d()
}

// begin notes what may come of a deed.
func (s *soak) begin(d *deed) {
	s.ends = append(s.ends, d.ends...)
	if d.w != nil {
		s.work = append(s.work, d.w)
	}
	if d.opens != "" {
		s.pending[d.opens] = true
	}
}

// do does it, and nothing else.
func (s *soak) do(d *deed) {
	s.t.Helper()
	s.note("%s", short(d.args))
	s.begin(d)
	o := s.run(d.args...)
	s.note("  %d %s", o.code, strings.TrimSpace(string(o.stderr)))
	d.done(o)
}

// crash kills it at some moment.
func (s *soak) crash(d *deed) {
	s.t.Helper()
	if d.args[0] == "exec" && slices.Contains(d.args, "close") {
		s.do(d) // the closer steps out, and goes on when its caller is killed
		return
	}
	s.crashes++
	after := time.Duration(s.rng.Int64N(int64(60 * time.Millisecond)))
	s.note("%s, killed after %v", short(d.args), after)
	s.begin(d)
	p := s.start(bin(), d.args...)
	time.Sleep(after)
	if err := p.id.kill(); err != nil {
		s.t.Fatal(err)
	}
	o := p.wait()
	s.note("  %d", o.code)
	s.blur(d)
	s.quieten()
}

// blur notes that it is not known what a deed has done.
func (s *soak) blur(d *deed) {
	for _, b := range d.touches {
		b.unsure = true
	}
	if d.w != nil {
		d.w.rough = true
		if slices.Contains(d.args, "--keep") {
			d.w.home = "" // a session that has no id yet
		}
	}
}

// together does several things at once.
func (s *soak) together() {
	s.t.Helper()
	var deeds []*deed
	for range 2 + s.rng.IntN(3) {
		deeds = append(deeds, s.deed())
	}
	var calls []*running
	for _, d := range deeds {
		s.note("%s &", short(d.args))
		s.begin(d)
		calls = append(calls, s.start(bin(), d.args...))
	}
	for _, d := range deeds { // a command in front of somebody would stand for ever
		if d.args[0] == "freeze" {
			time.Sleep(100 * time.Millisecond)
			s.run("thaw", d.args[1])
		}
	}
	for i, c := range calls {
		o := c.wait()
		s.note("  %s: %d %s", short(deeds[i].args), o.code, strings.TrimSpace(string(o.stderr)))
		s.blur(deeds[i])
		if deeds[i].args[0] == "close" && !slices.Contains(deeds[i].args, "--dry-run") && !slices.Contains([]int{0, 3, 7}, o.code) {
			s.wrong("%s beside others: exit code %d: %s", short(deeds[i].args), o.code, o.stderr)
		}
		if deeds[i].args[0] == "reconcile" && o.code != 0 {
			s.wrong("reconcile beside others: exit code %d: %s%s", o.code, o.stdout, o.stderr)
		}
	}
}

// quieten waits until what a killed call has set off is over: its command is ended by
// the anchor.
func (s *soak) quieten() {
	for end := time.Now().Add(time.Second); time.Now().Before(end); time.Sleep(20 * time.Millisecond) {
		before := len(s.census())
		time.Sleep(30 * time.Millisecond)
		if len(s.census()) == before {
			return
		}
	}
}

// ownerDies kills an owner.
func (s *soak) ownerDies() {
	o, ok := pick(s, s.owners)
	if !ok {
		return
	}
	s.note("owner %d dies", o.id.pid)
	o.die()
	s.owners = slices.DeleteFunc(s.owners, func(p *running) bool { return p == o })
	s.beGuarded()
}

// helperDies kills one of our own processes in a box: the anchor or the supervisor of a
// detached command. Neither is a reason for anything else to end.
func (s *soak) helperDies() {
	b, ok := s.session(func(b *soaked) bool { return !s.isFrozen(b) })
	if !ok {
		return
	}
	boxes := s.boxes()
	var pids []int
	_ = filepath.WalkDir(boxes[b.id], func(path string, d os.DirEntry, err error) error {
		if err == nil && d.IsDir() && d.Name() == "anchor" {
			pids = append(pids, members(path)...)
		}
		return nil
	})
	slices.Sort(pids)
	pid, ok := pick(s, pids)
	if !ok {
		return
	}
	id, err := identify(pid)
	if err != nil {
		return
	}
	argv, _ := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/cmdline")
	s.note("helper %d of %s dies: %q", pid, b.name, argv)
	if err := id.kill(); err != nil {
		s.t.Fatal(err)
	}
	s.quieten()
}

// call starts a command in front of a supervisor that goes on.
func (s *soak) call() {
	b, ok := s.session(func(b *soaked) bool { return s.quiet(b) && !s.isFrozen(b) })
	if !ok || len(s.calls) > 6 {
		s.do(s.deed())
		return
	}
	w := s.newWork(b, "call", 1)
	args := append([]string{"exec", b.id, "--"}, w.argv("payload", "--life", "1h")...)
	s.note("%s &", short(args))
	s.work = append(s.work, w)
	c := &call{running: s.start(bin(), args...), w: w, b: b}
	s.calls = append(s.calls, c)
	s.await(w, "exec &")
}

// callDies kills a supervisor: its command is ended, unless it was kept.
func (s *soak) callDies() {
	c, ok := pick(s, s.calls)
	if !ok {
		s.crash(s.deed())
		return
	}
	s.note("supervisor %d of %s dies", c.id.pid, filepath.Base(c.w.dir))
	if err := c.id.kill(); err != nil {
		s.t.Fatal(err)
	}
	kept := false
	for _, at := range s.before {
		kept = kept || at.w == c.w && at.session() != c.b.id
	}
	if !kept { // or now, or when its session is thawed
		c.w.rough = true
	}
	s.quieten()
}

// reap waits for the supervisors that have ended.
func (s *soak) reap() {
	s.calls = slices.DeleteFunc(s.calls, func(c *call) bool {
		if c.id.alive() {
			return false
		}
		c.wait()
		return true
	})
}

// loseRecords deletes all that was written down of a session.
func (s *soak) loseRecords() {
	b, ok := s.session(func(b *soaked) bool { return b.sound() })
	if !ok {
		return
	}
	s.note("the records of %s are lost", b.name)
	for end := time.Now().Add(time.Second); os.RemoveAll(filepath.Dir(s.sessionRecord(b.id))) != nil && time.Now().Before(end); {
	}
	b.lost = true
}

// garbage writes nonsense into a record.
func (s *soak) garbage() {
	b, ok := s.session(func(b *soaked) bool { return b.sound() })
	if !ok {
		return
	}
	what, _ := pick(s, []string{"", "{", "\x00\x01\x02", `{"schema":99}`, `[]`, "null", `{"schema":1}`})
	file := s.sessionRecord(b.id)
	b.lost = true
	if dir := filepath.Join(filepath.Dir(file), "tasks"); s.rng.IntN(2) == 0 {
		if entries, err := os.ReadDir(dir); err == nil && len(entries) > 0 {
			e, _ := pick(s, entries)
			file, b.lost = filepath.Join(dir, e.Name()), false
		}
	}
	s.note("%q in %s", what, file[len(s.stateDir()):])
	if err := os.WriteFile(file, []byte(what), 0o600); err != nil {
		s.t.Fatal(err)
	}
}

// guarding starts a guard, or kills it.
func (s *soak) guarding() {
	switch {
	case !s.hasGuard:
		s.do(s.deed())
	case s.guard == nil:
		s.note("the guard starts")
		s.guard = s.start(bin(), "guard")
		s.beGuarded()
	default:
		s.note("the guard dies")
		if err := s.guard.id.kill(); err != nil {
			s.t.Fatal(err)
		}
		s.guard.wait()
		s.guard = nil
	}
}

// finish ends the walk: everything can be closed, and nothing is left then.
func (s *soak) finish() {
	s.t.Helper()
	s.steps++
	if s.guard != nil {
		_ = s.guard.id.kill()
		s.guard.wait()
		s.guard = nil
	}
	for _, o := range s.owners {
		o.die()
	}
	if s.t.Failed() {
		s.tell()
		s.run("close", "--all", "--now")
	} else {
		s.note("close --all")
		s.sweep("at the end")
		for id, at := range s.census() {
			s.wrong("payload %v of %s lives at the end, in %v", id, filepath.Base(at.w.dir), at.ids)
		}
		s.reconcile() // a name whose session was never made
		s.nothing("at the end")
	}
	for _, c := range s.calls {
		_ = c.id.kill()
		c.wait()
	}
	for _, c := range s.canaries {
		c.lives()
	}
}

// short is a command line for people.
func short(args []string) string {
	line := strings.Join(args, " ")
	line = strings.ReplaceAll(line, bin(), "sessionbox")
	line = strings.ReplaceAll(line, escape(), "escape")
	if file := " " + os.TempDir() + "/"; strings.Contains(line, file) { // the payloads' own flags
		if at := strings.Index(line, " --dir "); at >= 0 {
			dir, _, _ := strings.Cut(line[at+len(" --dir "):], " ")
			line = line[:at] + " " + filepath.Base(dir)
		}
	}
	return line
}
