package guard

import (
	"cmp"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/sessionbox/sessionbox/pkg/internal/proc"
	"github.com/sessionbox/sessionbox/pkg/memlimit"
)

// scene is everything at this time, for the ladder; at is where each place is in it.
func (m *memory) scene() (sc memlimit.Scene, at map[*spot]int) {
	now := m.clock()
	sc.Now = now
	at = map[*spot]int{}
	for _, s := range m.order {
		if s.known {
			at[s] = len(sc.Places)
			sc.Places = append(sc.Places, memlimit.Spot{Place: s.Place, Verdict: &s.verdict})
		}
	}
	by := map[*spot]int{}
	for _, s := range m.order {
		if s.Kind == memlimit.KindSession && s.known {
			by[s] = len(sc.Sessions)
			sc.Sessions = append(sc.Sessions, s.candidate(now, at))
		}
	}
	for s, i := range by {
		for _, a := range s.around {
			if k, ok := by[a]; ok {
				sc.Sessions[k].Holds(&sc.Sessions[i])
			}
		}
	}
	return sc, at
}

func (s *spot) candidate(now time.Duration, at map[*spot]int) memlimit.Candidate {
	w := &s.watch
	c := memlimit.Candidate{ID: s.Session, Name: s.Name, Hard: s.sample.Hard, Swap: s.sample.Swap, Soft: s.sample.Soft, Anon: s.sample.Anon,
		Slope: s.verdict.Slope, Ceiling: w.Ceiling, May: w.Steps, Age: now - w.Opened, InUse: w.InUse,
		Protected: w.Protected, Frozen: s.sample.Frozen, Hibernated: w.Hibernated && s.sample.Frozen, FrozenAt: w.Frozen, ThawedAt: w.Thawed, Brake: memlimit.Infinity, High: w.High, Lifted: w.Lifted}
	if s.ourBrake() {
		c.Brake = s.sample.High
	}
	if !w.InUse {
		c.Idle = now - max(w.Active, s.busy)
	}
	if !c.Frozen { // thawed by other means
		c.FrozenAt = 0
	}
	for _, p := range w.Supervisors {
		c.Attached = c.Attached || hasTerminal(p)
	}
	c.Under = append(c.Under, at[s])
	for _, a := range s.around {
		if i, ok := at[a]; ok {
			c.Under = append(c.Under, i)
		}
	}
	return c
}

// hasTerminal says whether a process is in the foreground of a terminal: somebody looks at
// it.
func hasTerminal(p proc.ID) bool {
	st, err := proc.ReadStat(p.PID)
	return err == nil && st.Start == p.Start && st.TTY != 0 && st.Foreground == st.PGID
}

// decide asks the ladder what is to be done, if anything may be or was.
func (m *memory) decide() {
	m.ladder.Rules = m.rules
	stirred, may := m.ladder.Holding(), m.rules.Hold
	for _, s := range m.order {
		if !s.known {
			continue
		}
		v := &s.verdict
		may = may || s.watch.Steps != 0
		m.ladder.Rules.Hold = m.ladder.Rules.Hold || s.watch.Steps&memlimit.MayHold != 0
		may = may || s.watch.Frozen != 0 // it is thawed, whatever its record allows by now
		may = may || s.watch.Brake != 0 || s.watch.Lifted
		stirred = stirred || v.Level > memlimit.OK || v.Now > memlimit.OK || s.watch.Frozen != 0 || s.watch.Lifted || s.brakeIsOff() || v.RAM >= fullRAM && s.Kind != memlimit.KindSession
	}
	if !stirred || !may && !m.ladder.Holding() || m.act == nil {
		return
	}
	sc, _ := m.scene()
	for _, a := range m.ladder.Decide(&sc) {
		var inode uint64
		if s := m.sessions[a.Session]; s != nil {
			inode = s.watch.Inode
		}
		m.act(a, inode)
	}
}

// ourBrake says whether a session has a brake that a guard has set.
func (s *spot) ourBrake() bool { return s.watch.Brake != 0 && s.sample.High < s.watch.High }

// brakeIsOff says whether a brake is not, or may not be, as the ladder wants it.
func (s *spot) brakeIsOff() bool {
	if s.Kind != memlimit.KindSession || s.sample.Tier != memlimit.TierCgroup {
		return false
	}
	if s.sample.Max == memlimit.Infinity {
		return s.ourBrake()
	}
	w := &s.watch
	may := w.Steps&memlimit.MayBrake != 0 && w.High == memlimit.Infinity && !w.Protected && !s.sample.Frozen
	if !s.ourBrake() {
		return may
	}
	return !may || memlimit.BrakeMoved(s.sample.High, s.sample.Max)
}

// fullRAM is from when on memory that others share is worth being looked at though
// there is room in swap.
const fullRAM = .75

// hogs are the sessions in a place, the biggest first.
func (m *memory) hogs(in *spot) []memlimit.Hog {
	now := m.clock()
	var all []memlimit.Hog
	for _, s := range m.sessions {
		if !s.known || !slices.Contains(s.around, in) || nestedIn(s, in) {
			continue
		}
		h := memlimit.Hog{Name: s.Name, ID: s.Session, Bytes: s.sample.Demand(), Slope: s.verdict.Slope}
		if !s.watch.InUse {
			h.IdleSeconds = (now - s.watch.Active).Seconds()
		}
		all = append(all, h)
	}
	slices.SortFunc(all, func(a, b memlimit.Hog) int {
		return cmp.Or(cmp.Compare(b.Bytes, a.Bytes), cmp.Compare(a.ID, b.ID))
	})
	return all
}

// nestedIn says whether a session between it and a place counts what is in it.
func nestedIn(s, place *spot) bool {
	for _, a := range s.around {
		if a == place {
			return false
		}
		if a.Kind == memlimit.KindSession {
			return true
		}
	}
	return false
}

// concerned are the sessions that a warning is about: its own, or those that it names.
func (m *memory) concerned(s *spot, w *memlimit.Warning) []concern {
	if s.Kind == memlimit.KindSession {
		return []concern{{s.Place, s.watch}}
	}
	var all []concern
	for _, h := range w.Sessions {
		if c := m.sessions[h.ID]; c != nil && c.watch.Warn {
			all = append(all, concern{c.Place, c.watch})
		}
	}
	return all
}

func hogsOf(all []memlimit.Process) []memlimit.Hog {
	hogs := make([]memlimit.Hog, 0, len(all))
	for i := range all {
		p := &all[i]
		hogs = append(hogs, memlimit.Hog{Name: p.Comm, PID: p.PID, Start: p.Start, Task: taskOf(p.Leaf), Bytes: p.Hard() + p.Swap})
	}
	return hogs
}

// taskOf is the number of the task whose leaf is on a path in a box, 0 for none.
func taskOf(leaf string) int {
	for part := range strings.SplitSeq(leaf, "/") {
		if number, ok := strings.CutPrefix(part, "task-"); ok {
			n, _ := strconv.Atoi(number) // of another's making: none
			return n
		}
	}
	return 0
}
