package session

import (
	"context"
	"errors"
	"fmt"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"time"

	"github.com/sessionbox/sessionbox/pkg/internal/proc"
	"github.com/sessionbox/sessionbox/pkg/store"
)

// keepTime bounds the move of a task: one that forks faster than it is moved would
// never be through.
const keepTime = 30 * time.Second

// spareTime bounds how long a close moves who asks to be kept: what forks faster than it
// is moved ends with the rest.
const spareTime = 10 * time.Second

// endingTime is how long a process may be between its last instruction and its end.
const endingTime = 500 * time.Millisecond

// cleanMoves is how many looks in a row must find nobody left behind: a process that
// is being forked while the leaf is read may not be in the list.
const cleanMoves = 2

// Keep moves a task, with all that it started, to a session of its own, which has no
// owner and is closed by its own close. Each process is in the old box until it is in
// the new one. It gives the new session and the task's number there. Broken off, it
// can be repeated.
//
// The processes keep their environment: SESSIONBOX_ID and the cookie are those of the
// session they were started in.
func (s *Session) Keep(ctx context.Context, n int) (*Session, int, error) {
	if _, err := s.present(); err != nil {
		return nil, 0, err
	}
	if s.IsContainer() {
		return nil, 0, s.endsWithContainer()
	}
	if err := s.knowsTask(n); err != nil {
		return nil, 0, err
	}
	// No close of this session may begin before all are out of it.
	lock, err := s.stayOpen(ctx)
	if err != nil {
		return nil, 0, err
	}
	defer lock.Unlock()
	t, err := s.m.store.Task(s.rec.ID, n)
	if err != nil {
		t = store.Task{N: n, State: store.TaskOrphaned, Reason: "it had no record"}
		v := view{m: s.m, rec: &s.rec, box: s.box, now: ticksNow()}
		if v.members(); len(v.byTsk[n]) > 0 {
			t = v.unrecorded(n, v.byTsk[n])
		}
		t.Started = time.Now()
	}
	if p, err := s.box.Populated(LeafName(n)); err == nil && !p && t.Moved == "" {
		return nil, 0, &Error{Kind: ErrUsage, Session: s.Name(), Text: fmt.Sprintf("nothing of task %d runs", n), Hint: "there is nothing to keep"}
	}
	if err := s.aroundThawed(); err != nil {
		return nil, 0, err
	}
	// What its leaf tells goes with the leaf.
	if y := s.m.tally(s.box, &s.rec, &t); t.Moved == "" && !y.Shared {
		t.OOM, t.PeakBytes = y.OOM, y.PeakBytes
	}
	kept, num, err := s.keptFor(ctx, &t)
	if err != nil {
		return nil, 0, err
	}
	if from, ok := s.box.(*lineageBox); ok {
		err = from.handOver(ctx, LeafName(n), kept.box.(*lineageBox), LeafName(num))
	} else {
		err = s.moveAll(ctx, LeafName(n), kept, LeafName(num))
	}
	if err != nil {
		kept.Release()
		return nil, 0, err
	}
	if err := s.moveHelpers(ctx, &t, kept); err != nil {
		// They end with this session: the status or the log of the task is lost then.
		s.m.log.Warn("move who waits for a task that was kept, and who keeps its log", "task", n, "err", err)
	}
	s.box.RemoveLeaf(LeafName(n))
	s.m.event(store.Event{Event: "kept", ID: s.rec.ID, Name: s.rec.Name, Task: n}, map[string]any{"session": kept.ID(), "name": kept.Name(), "task": num})
	return kept, num, nil
}

// stayOpen keeps the session from being closed.
func (s *Session) stayOpen(ctx context.Context) (*store.Lock, error) {
	wait, cancel := context.WithTimeout(ctx, lockTime)
	defer cancel()
	lock, err := s.lockStart(wait)
	if err != nil {
		return nil, err
	}
	rec, err := s.m.store.Get(s.rec.ID)
	if err == nil && rec.State != store.StateOpen {
		err = &Error{Kind: ErrClosed, Session: s.Name(), Text: "is being closed"}
	}
	if err == nil {
		err = s.m.mayAct(&rec, s.generation)
	}
	if err != nil {
		lock.Unlock()
		return nil, err
	}
	return lock, nil
}

// keptFor gives the session that a task is kept in, made unless an earlier try made
// it, and its number there. The records name the place before anybody is moved.
func (s *Session) keptFor(ctx context.Context, t *store.Task) (*Session, int, error) {
	var id string
	var num int
	if t.Moved != "" {
		if _, err := fmt.Sscanf(t.Moved, "%10s/%d", &id, &num); err == nil {
			if kept, err := s.m.Get(ctx, id); err == nil && kept.box != nil {
				return kept, num, nil
			}
		}
	}
	kept, err := s.openKept(ctx, s, s.shareTmp()...)
	if err != nil {
		return nil, 0, err
	}
	num, err = kept.receive(ctx, *t)
	if err == nil {
		t.Moved = fmt.Sprintf("%s/%d", kept.ID(), num)
		err = s.m.store.PutTask(s.rec.ID, *t)
	}
	if err != nil {
		kept.discard(ctx)
		return nil, 0, recordError(err)
	}
	return kept, num, nil
}

// startKept starts a command in a session of its own beside this one.
func (s *Session) startKept(ctx context.Context, cmd *exec.Cmd, o StartOptions) (*Task, error) {
	kept, err := s.beside(ctx)
	if err != nil {
		return nil, err
	}
	o.Keep = false
	t, err := kept.Start(ctx, cmd, o)
	if err != nil {
		kept.discard(ctx)
	}
	return t, err
}

// beside opens a session for what is kept of this one, if a command may be started here.
func (s *Session) beside(ctx context.Context) (*Session, error) {
	if s.IsContainer() {
		return nil, s.endsWithContainer()
	}
	lock, err := s.enter(ctx)
	if err != nil {
		return nil, err
	}
	defer lock.Unlock()
	if err := s.aroundThawed(); err != nil {
		return nil, err
	}
	return s.openKept(ctx, s)
}

func (s *Session) endsWithContainer() error {
	return &Error{Kind: ErrUnsupported, Session: s.Name(), Text: "is a container: nothing in it outlives it", Hint: "open another session for what is to stay"}
}

// aroundThawed is an error if what a session beside this one would be in is frozen:
// whoever starts something there waits for it for ever.
func (s *Session) aroundThawed() error {
	if frozen, err := s.aroundFrozen(); err != nil || !frozen {
		return err
	}
	return &Error{Kind: ErrFrozen, Session: s.Name(), Text: "the session around it is frozen",
		Hint: "`sessionbox thaw` that one first; `sessionbox tree` shows it"}
}

func (s *Session) aroundFrozen() (bool, error) {
	if _, ok := s.box.(*lineageBox); !ok {
		return frozenAt(filepath.Dir(s.box.Path()))
	}
	if s.rec.Parent == "" {
		return false, nil
	}
	around, err := s.m.Get(context.Background(), s.rec.Parent)
	if errors.Is(err, ErrNotFound) || err == nil && around.box == nil {
		return false, nil
	}
	if err != nil {
		return false, err
	}
	defer around.Release()
	return around.box.Frozen()
}

// discard closes a session in which nothing was started after all.
func (s *Session) discard(ctx context.Context) {
	s.Release()
	if _, err := s.m.closeID(context.WithoutCancel(ctx), s.rec.ID, CloseOptions{Now: true}, false); err != nil {
		s.m.log.Warn("close a session that was opened for nothing", "session", s.rec.ID, "err", err)
	}
}

// keepMarked moves those who carry SESSIONBOX_KEEP=1, or are spared, out of the box that is about to be
// closed, into a session of their own, made unless given, and gives it and what it
// moved. Who started them said so. It lies beside the outermost session that is closed.
func (s *Session) keepMarked(ctx context.Context, kept, beside *Session, spared map[proc.ID]bool) (*Session, []Process, error) {
	members, err := s.box.Members("")
	if err != nil {
		return kept, nil, err
	}
	var moved []Process
	marked := make([]bool, len(members))
	each(len(members), func(i int) {
		m := members[i]
		if nestedLeaf(m.Leaf) || engineLeaf(m.Leaf) { // of another session, or of a container, which its engine ends
			return
		}
		env, err := proc.Env(m.PID, EnvKeep)
		marked[i] = (err == nil && env[EnvKeep] == "1" || isOneOf(spared, m.PID)) && !isHelper(m)
	})
	now := ticksNow()
	for i, m := range members {
		if !marked[i] {
			continue
		}
		p, ok := describe(m.PID, named, now)
		if !ok {
			continue
		}
		if kept == nil {
			if kept, err = s.openKept(ctx, beside, s.shareTmp()...); err != nil {
				return nil, nil, err
			}
			t := store.Task{Argv: p.Argv, PID: p.PID, Start: p.Start, Started: time.Now(), StartClock: proc.Clock(),
				State: store.TaskOrphaned, Reason: "it was kept when its session was closed"}
			if t.N, err = kept.receive(ctx, t); err != nil {
				return kept, nil, err
			}
		}
		if err := kept.take(ctx, s.box, "", LeafName(1), m); err != nil {
			return kept, moved, err
		}
		p.Session, p.Task = kept.ID(), 1
		moved = append(moved, p)
	}
	return kept, moved, nil
}

// isOneOf says whether a pid is that of one of some processes still.
func isOneOf(ids map[proc.ID]bool, pid int) bool {
	if len(ids) == 0 {
		return false
	}
	st, err := proc.ReadStat(pid)
	return err == nil && ids[proc.ID{PID: pid, Start: st.Start}]
}

// receive records a task of another session as one of this.
func (s *Session) receive(ctx context.Context, t store.Task) (int, error) {
	wait, cancel := context.WithTimeout(ctx, lockTime)
	defer cancel()
	lock, err := s.m.store.Lock(wait, s.rec.ID, store.LockStart)
	if err != nil {
		return 0, err
	}
	defer lock.Unlock()
	t.N, t.Timeout, t.KillAfter, t.Ending, t.Moved, t.Extra = 0, 0, 0, "", "", nil
	if err := lock.AddTask(&t); err != nil {
		return 0, err
	}
	t.Leaf = LeafName(t.N)
	if _, err := s.box.Prepare(ctx, t.Leaf); err != nil {
		return 0, err
	}
	s.dieTogether(ctx, t.Leaf)
	return t.N, s.m.store.PutTask(s.rec.ID, t)
}

// openKept opens the session NAME.kept-N beside this one or one around it: inside the
// same session, if any, and with this one's ceilings. Directories for temporary files that tmp names stay
// for as long as it is open.
func (s *Session) openKept(ctx context.Context, beside *Session, tmp ...string) (*Session, error) {
	if s.rec.Kind == store.KindSystemd { // whose unit would never come up
		if err := beside.aroundThawed(); err != nil {
			return nil, err
		}
	}
	rec, ag, err := s.m.newRecord(&OpenOptions{Labels: s.rec.Labels, Kind: s.rec.Kind, Grace: &s.rec.Grace, OOM: s.rec.OOMPolicy, PrivateTmp: s.rec.PrivateTmp, Shims: s.rec.Shims})
	if err != nil {
		return nil, err
	}
	rec.Limits, rec.Parent, rec.Cwd = s.rec.Limits, beside.rec.Parent, s.rec.Cwd
	rec.KeptFrom = append(slices.Clone(s.rec.KeptFrom), s.rec.ID)
	rec.KeptTmp = tmp
	rec.Strict, rec.Doors, rec.DoorEnv = s.rec.Strict, s.rec.Doors, s.rec.DoorEnv
	const most = 64 - len(store.KeptMark+"99999")
	name := s.Name()
	name = name[:min(len(name), most)]
	for n := 1; ; n++ {
		rec.Name = fmt.Sprintf("%s%s%d", name, store.KeptMark, n)
		wait, cancel := context.WithTimeout(ctx, claimTime)
		err := s.m.store.Claim(wait, rec)
		cancel()
		if err == nil {
			break
		}
		if !errors.As(err, new(*store.NameTakenError)) {
			return nil, recordError(err)
		}
	}
	var at place
	if b, ok := beside.box.(*lineageBox); ok {
		ids := b.chain()
		at.parents = ids[:len(ids)-1]
	} else {
		at.base = filepath.Dir(beside.box.Path())
		if ids := idsOfPath(beside.box.Path()); len(ids) > 1 {
			at.parents = ids[:len(ids)-1]
		}
	}
	return s.m.build(ctx, rec, at, ag, nil)
}

// moveAll moves everybody from a leaf to a leaf of another session. What is forked
// meanwhile is where its parent is at that moment.
func (s *Session) moveAll(ctx context.Context, leaf string, to *Session, toLeaf string) error {
	wait, cancel := context.WithTimeout(ctx, keepTime)
	defer cancel()
	for clean := 0; clean < cleanMoves; {
		members, err := s.box.Members(leaf)
		if err != nil {
			return err
		}
		clean++
		for _, m := range members {
			clean = 0
			if err := to.take(wait, s.box, leaf, toLeaf, m); err != nil {
				return err
			}
		}
		if err := wait.Err(); err != nil {
			return &Error{Kind: ErrTimeout, Session: s.Name(), Text: "not all of the task could be moved", Err: err, Retry: true,
				Hint: "it forks faster than it is moved; each of its processes is in one of the two sessions, keep it again"}
		}
	}
	return nil
}

// moveHelpers moves those of our own processes in the box that work for a task: the one
// that waits for it, if it is not the caller's, and the one that keeps its log.
func (s *Session) moveHelpers(ctx context.Context, t *store.Task, to *Session) error {
	members, err := s.box.Members(helperLeaf)
	if err != nil {
		return err
	}
	ready := false
	for _, m := range members {
		argv := proc.Args(m.PID)
		waits := len(argv) == 2 && argv[1] == SuperviseArg && m.PID == t.Supervisor.PID
		logs := len(argv) == 6 && argv[1] == LogArg && argv[3] == s.rec.ID && argv[4] == strconv.Itoa(t.N)
		if !waits && !logs {
			continue
		}
		if !ready {
			if err := to.box.EnsureAnchor(ctx); err != nil {
				return err
			}
			if _, err := to.box.Prepare(ctx, helperLeaf); err != nil {
				return err
			}
			ready = true
		}
		if err := to.take(ctx, s.box, helperLeaf, helperLeaf, m); err != nil {
			return err
		}
	}
	return nil
}

// take moves one member of another box into a leaf of this session. It is seen to be
// one while a handle keeps its pid from being another's.
func (s *Session) take(ctx context.Context, from Box, leaf, toLeaf string, m proc.Member) error {
	if b, ok := from.(*lineageBox); ok {
		to, ok := s.box.(*lineageBox)
		if !ok {
			return notMoved(s)
		}
		return s.takeLineage(b, to, toLeaf, m)
	}
	h, err := proc.OpenPID(m.PID)
	if errors.Is(err, proc.ErrGone) {
		return nil
	}
	if err != nil {
		return err
	}
	defer h.Close()
	if !isMember(from, leaf, m.PID) {
		return nil
	}
	err = s.box.Move(ctx, toLeaf, m.PID)
	if err == nil {
		return nil
	}
	// One that is about to end is in no list of members any more, before its pidfd
	// says so.
	wait, cancel := context.WithTimeout(ctx, endingTime)
	defer cancel()
	if h.Wait(wait) == nil {
		return nil
	}
	return err
}

func notMoved(s *Session) error {
	return &Error{Kind: ErrUnsupported, Session: s.Name(), Text: "what is in a lineage box cannot be moved to a box of another kind"}
}

// whereKept finds the session that a task of another was kept in.
func (m *Manager) whereKept(from string, t *store.Task) (*Session, int, bool) {
	recs, _, err := m.store.Sessions()
	if err != nil {
		return nil, 0, false
	}
	for i := range recs {
		if !slices.Contains(recs[i].KeptFrom, from) {
			continue
		}
		tasks, _, err := m.store.Tasks(recs[i].ID)
		if err != nil {
			continue
		}
		for k := range tasks {
			if tasks[k].PID != t.PID || tasks[k].Start != t.Start {
				continue
			}
			if s, err := m.Get(context.Background(), recs[i].ID); err == nil && s.box != nil {
				return s, tasks[k].N, true
			}
		}
	}
	return nil, 0, false
}
