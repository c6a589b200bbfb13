package integration_test

import (
	"cmp"
	"encoding/json"
	"fmt"
	"maps"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/sessionbox/sessionbox/pkg/cgroup"
	"github.com/sessionbox/sessionbox/pkg/session"
)

// TestSoak does at random what people, harnesses and crashes do to sessions, and looks
// after every step whether the promises of DESIGN §2 hold. What is done depends on the
// seed alone, but for how far the machine had come when something was killed.
//
//	SESSIONBOX_TEST_SEED  the seed, one that failed was printed; "random" for another one
//	                      each time. A change is judged by the same walk as the one before.
//	SESSIONBOX_TEST_SOAK  for how long
func TestSoak(t *testing.T) {
	r := newRig(t)
	s := newSoak(r)
	t.Cleanup(s.tell) // of a helper's Fatal, before the rig closes everything
	for range 2 {     // they live longer than any walk takes
		s.canaries = append(s.canaries, r.canaryWith("canary", syscall.SysProcAttr{}, escape(), "--life", "24h"))
	}
	end := time.Now().Add(soakTime(t))
	for n := 0; time.Now().Before(end) && !t.Failed(); n++ {
		s.step(n)
	}
	s.finish()
	t.Logf("seed %d: %d steps, %d sessions closed, %d broken off", s.seed, s.steps, len(s.closed), s.crashes)
}

// soakTime is how long a walk takes.
func soakTime(t *testing.T) time.Duration {
	t.Helper()
	if v := os.Getenv("SESSIONBOX_TEST_SOAK"); v != "" {
		d, err := time.ParseDuration(v)
		if err != nil {
			t.Fatalf("SESSIONBOX_TEST_SOAK: %v", err)
		}
		return d
	}
	switch {
	case testing.Short(), tierName() == "systemd":
		return 8 * time.Second
	case tierName() == "vm":
		return 5 * time.Second
	}
	return 15 * time.Second
}

// soakSeed is the seed of a walk.
func soakSeed(t *testing.T) uint64 {
	t.Helper()
	v := os.Getenv("SESSIONBOX_TEST_SEED")
	switch v {
	case "":
		return 61
	case "random":
		return rand.Uint64N(1_000_000)
	}
	seed, err := strconv.ParseUint(v, 10, 64)
	if err != nil {
		t.Fatalf("SESSIONBOX_TEST_SEED: %v", err)
	}
	return seed
}

// soak is a walk: the system is the rig's, the rest is a model of it.
type soak struct {
	*rig
	rng      *rand.Rand
	seed     uint64
	steps    int
	crashes  int
	log      []string
	names    int
	works    int
	told     bool
	sessions []*soaked // not known to be closed, oldest first
	closed   map[string]int
	pending  map[string]bool // names that something broken off may have opened
	owners   []*running      // living ones
	work     []*work
	calls    []*call // commands in front of somebody
	canaries []*canary
	guard    *running
	hasGuard bool
	ways     []technique
	base     string // directory of all boxes
	before   map[ident]spot
	ends     []string // what may end in this step: sessions, or SESSION/TASK
	checking bool
	problems []string // of a check that may be repeated
}

// soaked is what the model knows of a session.
type soaked struct {
	id, name, parent string
	owner            *running // nil: nobody's or a lease
	lease, brief     bool     // held by a lease; by one that soon ends
	keep             bool     // stays when its owner is gone
	idle             string   // what is done when it was idle, "" nothing
	generation       int
	frozen, kept     bool
	// empty: it was opened to keep something, which may never have come.
	empty bool
	// unsure: something was done to it whose outcome is not known yet.
	unsure bool
	// half: its opening or close was broken off.
	half bool
	// lost: its record is gone or useless.
	lost bool
}

// work is a directory of payloads.
type work struct {
	payloads
	home string // the session whose cookie they carry
	out  bool   // they left the box
	want int    // how many there are when all are up
	// rough: they were started by something that was broken off, and may or may not
	// be there.
	rough bool
}

// call is a command in front of a supervisor that the test started.
type call struct {
	*running
	w *work
	b *soaked
}

// spot is where a payload is.
type spot struct {
	w    *work
	ids  []string // of the sessions around it, outermost first; none: outside
	task string   // SESSION/TASK, "" in no task's leaf
}

func newSoak(r *rig) *soak {
	seed := soakSeed(r.t)
	r.t.Logf("SESSIONBOX_TEST_SEED=%d", seed)
	s := &soak{rig: r, seed: seed, rng: rand.New(rand.NewPCG(seed, 1)), closed: map[string]int{}, pending: map[string]bool{}, before: map[ident]spot{}}
	s.hasGuard = r.run("help", "guard").code == 0 && strings.Contains(r.run("help").text(), "guard ")
	usable := []string{"payload", "E01", "E02", "E03", "E04", "E05", "E06", "E07", "E08", "E09", "E12", "E20", "E21", "E23", "E25", "E25b", "E28"}
	for _, k := range r.catalog() {
		if slices.Contains(usable, k.ID) && len(k.Missing) == 0 {
			s.ways = append(s.ways, k)
		}
	}
	if os.Geteuid() == 0 && os.Getenv(envOutside) != "" {
		for _, k := range r.catalog() {
			if k.ID == "E28b" && len(k.Missing) == 0 {
				s.ways = append(s.ways, k)
			}
		}
	}
	return s
}

func (s *soak) note(format string, args ...any) {
	s.log = append(s.log, fmt.Sprintf("%4d %s", s.steps, fmt.Sprintf(format, args...)))
}

// wrong reports what must not be.
func (s *soak) wrong(format string, args ...any) {
	s.t.Helper()
	what := fmt.Sprintf(format, args...)
	if s.checking {
		s.problems = append(s.problems, what)
		return
	}
	s.t.Errorf("seed %d, step %d: %s", s.seed, s.steps, what)
}

// tell shows how a walk that failed came to where it is.
func (s *soak) tell() {
	if !s.t.Failed() || s.told {
		return
	}
	s.told = true
	const last = 80
	s.t.Logf("seed %d; the last steps:\n%s", s.seed, strings.Join(s.log[max(0, len(s.log)-last):], "\n"))
	for _, i := range s.list() {
		s.t.Logf("listed: %s %s %s, owner %+v, frozen %v, %d processes, %v", i.ID, i.Name, i.State, i.Owner, i.Box.Frozen, i.Processes, i.Problems)
		for _, t := range i.Tasks {
			s.t.Logf("  task %d: %s (%s), pid %d, %d leftovers", t.N, t.State, t.Reason, t.PID, t.Leftovers)
		}
	}
	for _, b := range s.sessions {
		s.t.Logf("model: %+v", *b)
		record, _ := os.ReadFile(s.sessionRecord(b.id))
		s.t.Logf("record of %s: %s", b.id, record)
	}
	if s.base != "" {
		var dirs []string
		for id, dir := range s.boxes() {
			dirs = append(dirs, fmt.Sprintf("%s %s %v", id, dir, describe(members(dir))))
		}
		s.t.Logf("boxes:\n%s", strings.Join(dirs, "\n"))
	}
	for id, at := range s.census() {
		s.t.Logf("payload %v of %s in %v %s", id, filepath.Base(at.w.dir), at.ids, at.task)
	}
}

// boxes are the directories of boxes, by session.
func (s *soak) boxes() map[string]string {
	all := map[string]string{}
	if s.base == "" {
		return all
	}
	_ = filepath.WalkDir(s.base, func(path string, d os.DirEntry, err error) error {
		if err == nil && d.IsDir() {
			if ids, ok := cgroup.SliceIDs(d.Name()); ok {
				all[ids[len(ids)-1]] = path
			}
		}
		return nil
	})
	return all
}

// census says of each living payload where it is, by the kernel's word.
func (s *soak) census() map[ident]spot {
	all := map[ident]spot{}
	for _, w := range s.work {
		for _, id := range livingIn(w.dir) {
			b, err := cgroupOf(id)
			if err != nil || !id.alive() {
				continue
			}
			all[id] = spotOf(w, b)
		}
	}
	return all
}

// cgroupOf reads where a process is: what lives of it, if its leading thread does not.
func cgroupOf(id ident) (string, error) {
	dir := fmt.Sprintf("/proc/%d", id.pid)
	if f, err := statFields(id.pid); err == nil && f[0] == "Z" {
		threads, _ := os.ReadDir(dir + "/task")
		for _, t := range threads {
			if t.Name() != strconv.Itoa(id.pid) {
				dir += "/task/" + t.Name()
				break
			}
		}
	}
	b, err := os.ReadFile(dir + "/cgroup")
	return string(b), err
}

func spotOf(w *work, cgroups string) spot {
	at := spot{w: w}
	for line := range strings.Lines(cgroups) {
		path, ok := strings.CutPrefix(strings.TrimSpace(line), "0::")
		if !ok {
			continue
		}
		for part := range strings.SplitSeq(path, "/") {
			if ids, ok := cgroup.SliceIDs(part); ok {
				at.ids, at.task = ids, ""
			}
			if n, ok := strings.CutPrefix(part, "task-"); ok && len(at.ids) > 0 && at.task == "" {
				at.task = at.session() + "/" + n
			}
		}
	}
	return at
}

// session is the innermost one around it.
func (at spot) session() string {
	if len(at.ids) == 0 {
		return ""
	}
	return at.ids[len(at.ids)-1]
}

// mayEnd says whether a payload may have ended in this step.
func (s *soak) mayEnd(at spot) bool {
	if at.w.rough || len(recordedIn(at.w.dir)) < at.w.want {
		return true
	}
	for _, e := range s.ends {
		if e == at.task || slices.Contains(at.ids, e) || at.w.out && e == at.w.home {
			return true
		}
	}
	return false
}

// check looks whether what must be true is. What a guard is about to do it may need
// some looks to see done.
func (s *soak) check() {
	s.t.Helper()
	looks := 1
	if s.guard != nil {
		looks = 20
	}
	for ; looks > 0; looks-- {
		s.checking, s.problems = true, nil
		s.look()
		s.checking = false
		if len(s.problems) == 0 {
			break
		}
		if looks > 1 {
			time.Sleep(100 * time.Millisecond)
			s.beGuarded()
		}
	}
	for _, p := range s.problems {
		s.wrong("%s", p)
	}
	s.before = s.census()
	s.work = slices.DeleteFunc(s.work, func(w *work) bool {
		_, over := s.closed[w.home]
		return over && len(livingIn(w.dir)) == 0 && !w.rough
	})
	s.ends = s.ends[:0]
}

// look is one look at everything.
func (s *soak) look() {
	s.t.Helper()
	for _, c := range s.canaries {
		if !c.id.alive() {
			s.wrong("a canary was killed")
		}
	}
	now := s.census()
	// What somebody else opens on this machine meanwhile, with records of his own, is listed
	// by its box, too.
	infos := slices.DeleteFunc(s.list(), func(i session.Info) bool {
		return s.base != "" && i.Box.Path != "" && !strings.HasPrefix(i.Box.Path, s.base+"/")
	})
	s.settle(infos)
	for id, at := range s.before {
		if _, lives := now[id]; !lives && !id.alive() && !s.mayEnd(at) {
			s.wrong("payload %v of %s, in %v %s, was ended", id, filepath.Base(at.w.dir), at.ids, at.task)
		}
	}
	s.checkPayloads(now, infos)
	listed := map[string]bool{}
	for i := range infos {
		listed[infos[i].ID] = true
	}
	for id, dir := range s.boxes() {
		if n, was := s.closed[id]; was {
			s.wrong("%s, the box of a session that was closed in step %d, is there: %v", dir, n, describe(members(dir)))
		} else if !listed[id] {
			s.wrong("%s is no listed session's", dir)
		}
	}
	if s.guard != nil {
		for _, b := range s.sessions {
			if b.sound() && b.ownerGone() {
				s.wrong("the owner of %s is dead, and the guard has done nothing", b.name)
			}
		}
	}
}

// checkPayloads compares what lives with what is said of it.
func (s *soak) checkPayloads(now map[ident]spot, infos []session.Info) {
	s.t.Helper()
	by := map[string]*session.Info{}
	for i := range infos {
		by[infos[i].ID] = &infos[i]
	}
	for id, at := range now {
		home := at.session()
		if home == "" {
			home = at.w.home
			if !at.w.out {
				s.wrong("payload %v is in no box", id)
			}
			if home == "" {
				continue
			}
		}
		if n, was := s.closed[home]; was {
			s.wrong("payload %v of %s lives; its session %s was closed in step %d", id, filepath.Base(at.w.dir), home, n)
			continue
		}
		i := by[home]
		if i == nil {
			s.wrong("payload %v lives in %s, which is not listed", id, home)
			continue
		}
		if at.task == "" {
			continue
		}
		k := slices.IndexFunc(i.Tasks, func(t session.TaskInfo) bool { return fmt.Sprintf("%s/%d", i.ID, t.N) == at.task })
		if k < 0 {
			if id.alive() {
				s.wrong("payload %v lives in %s, which is not listed", id, at.task)
			}
			continue
		}
		t := i.Tasks[k]
		if !slices.Contains([]string{"running", "starting", "orphaned"}, t.State) && t.Leftovers == 0 && id.alive() {
			s.wrong("payload %v lives in %s, which is %s (%s) without leftovers", id, at.task, t.State, t.Reason)
		}
	}
}

// settle compares the list with the model and learns what it could not know.
func (s *soak) settle(infos []session.Info) {
	s.t.Helper()
	by := map[string]*session.Info{}
	for i := range infos {
		by[infos[i].ID] = &infos[i]
	}
	for _, b := range slices.Clone(s.sessions) {
		i := by[b.id]
		delete(by, b.id)
		switch {
		case i == nil && b.unsure:
			s.gone(b)
		case i == nil:
			s.wrong("session %s (%s) is not listed", b.name, b.id)
			s.gone(b)
		case b.unsure:
			s.learn(b, i)
		default:
			s.compare(b, i)
		}
		if i != nil {
			b.empty = b.kept && len(i.Tasks) == 0 && i.Processes == 0
		}
	}
	for _, id := range slices.Sorted(maps.Keys(by)) {
		i := by[id]
		if n, was := s.closed[id]; was {
			s.wrong("session %s, which was closed in step %d, is listed as %s", id, n, i.State)
			continue
		}
		parent, _, kept := strings.Cut(i.Name, ".kept-")
		if !s.pending[i.Name] && (!kept || parent == "") {
			s.wrong("nobody opened session %s (%q): %s since %v, kept from %v, in %q, %+v, %q", id, i.Name, i.State, i.Created, i.KeptFrom, i.Parent, i.Box, i.Problems)
		}
		b := &soaked{id: id, name: i.Name, kept: kept}
		b.idle = s.idleAction(id)
		s.sessions = append(s.sessions, b)
		s.learn(b, i)
		b.empty = kept && len(i.Tasks) == 0
	}
}

// idleAction is what is done to a session that is idle for a short time, "" if nothing.
func (s *soak) idleAction(id string) string {
	var i session.Info
	o := s.run("inspect", "--json", id)
	if o.code != 0 || json.Unmarshal(o.stdout, &i) != nil || i.Idle == nil || i.Idle.TimeoutSeconds > 10 {
		return "" // a guard may have closed it meanwhile
	}
	return i.Idle.Action
}

// compare looks whether a session is as the model has it.
func (s *soak) compare(b *soaked, i *session.Info) {
	s.t.Helper()
	if b.lost {
		return
	}
	b.name = i.Name // it has none when another had it meanwhile
	if i.State != "open" && !b.half {
		s.wrong("session %s is %s, want open: %v", b.name, i.State, i.Problems)
	}
	if pid := ownerPID(i); b.owner != nil && pid != b.owner.id.pid {
		s.wrong("session %s belongs to %d, want %d", b.name, pid, b.owner.id.pid)
	}
	if i.Owner != nil && i.Owner.Generation != b.generation {
		s.wrong("session %s has an owner of generation %d, want %d", b.name, i.Owner.Generation, b.generation)
	}
	if i.Owner != nil && b.owner != nil && (i.Owner.State == session.OwnerAlive) != b.owner.id.alive() {
		s.wrong("the owner of %s is called %s", b.name, i.Owner.State)
	}
	if i.Box.Frozen != s.isFrozen(b) && !i.Box.Gone && i.Processes > 0 {
		s.wrong("session %s: frozen is %v, want %v", b.name, i.Box.Frozen, s.isFrozen(b))
	}
}

// learn takes over what became of a session.
func (s *soak) learn(b *soaked, i *session.Info) {
	s.t.Helper()
	b.parent = i.Parent
	b.lost = slices.ContainsFunc(i.Problems, func(p string) bool { return strings.Contains(p, "no record") || strings.Contains(p, "session.json") })
	b.half = !b.lost && i.State != "open"
	b.unsure = b.half
	b.frozen = i.Box.Frozen && !s.frozenAround(b)
	if b.lost {
		return
	}
	b.name = i.Name
	b.owner, b.lease = nil, false
	if i.Owner == nil {
		return
	}
	if i.Owner.Generation < b.generation {
		s.wrong("the generation of %s went from %d to %d", b.name, b.generation, i.Owner.Generation)
	}
	b.generation, b.keep = i.Owner.Generation, i.Owner.OnExit == "keep"
	b.lease, b.brief = i.Owner.PID == 0, i.Owner.PID == 0 && i.Owner.LeaseSeconds < 10
	for _, o := range s.owners {
		if o.id.pid == i.Owner.PID {
			b.owner = o
		}
	}
	if b.owner == nil && !b.lease { // it has died
		b.owner = &running{r: s.rig, id: ident{i.Owner.PID, i.Owner.Start}}
	}
}

func ownerPID(i *session.Info) int {
	if i.Owner == nil {
		return 0
	}
	return i.Owner.PID
}

// gone takes a session that was closed, with those inside it, out of the model.
//
// Of one inside whose own close was broken off there may be no more than a record: nothing in
// the box that is closed tells of it, and a reconcile finishes it.
func (s *soak) gone(b *soaked) {
	for _, c := range s.inside(b) {
		if c != b && c.half {
			c.parent, c.unsure = "", true
			continue
		}
		s.closed[c.id] = s.steps
	}
	s.sessions = slices.DeleteFunc(s.sessions, func(c *soaked) bool { _, over := s.closed[c.id]; return over })
}

// inside gives a session and all that are in it.
func (s *soak) inside(b *soaked) []*soaked {
	all := []*soaked{b}
	for _, c := range s.sessions {
		if c.parent == b.id && c != b {
			all = append(all, s.inside(c)...)
		}
	}
	return all
}

// endsWith are the sessions that are closed with one: what left their boxes ends, too.
func (s *soak) endsWith(b *soaked) (ids []string) {
	for _, c := range s.inside(b) {
		ids = append(ids, c.id)
	}
	return ids
}

func (s *soak) frozenAround(b *soaked) bool {
	for _, c := range s.sessions {
		if c.id == b.parent && b.parent != "" {
			return s.isFrozen(c)
		}
	}
	return false
}

func (s *soak) isFrozen(b *soaked) bool { return b.frozen || s.frozenAround(b) }

// sound: all that is known of it is known for sure.
func (b *soaked) sound() bool { return !b.unsure && !b.half && !b.lost }

// ownerGone says that the owner is dead.
func (b *soaked) ownerGone() bool { return b.owner != nil && !b.owner.id.alive() }

// pick takes one of several at random.
func pick[T any](s *soak, all []T) (T, bool) {
	var none T
	if len(all) == 0 {
		return none, false
	}
	return all[s.rng.IntN(len(all))], true
}

// session takes a session that fits.
func (s *soak) session(fits func(*soaked) bool) (*soaked, bool) {
	return pick(s, slices.DeleteFunc(slices.Clone(s.sessions), func(b *soaked) bool { return !fits(b) }))
}

// tasks are the tasks that payloads live in, sorted.
func (s *soak) tasks() []string {
	set := map[string]bool{}
	for _, at := range s.before {
		if at.task != "" {
			set[at.task] = true
		}
	}
	return slices.SortedFunc(maps.Keys(set), cmp.Compare[string])
}
