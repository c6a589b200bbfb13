package session

import (
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/sessionbox/sessionbox/pkg/cgroup"
	"github.com/sessionbox/sessionbox/pkg/internal/engines"
	"github.com/sessionbox/sessionbox/pkg/internal/proc"
	"github.com/sessionbox/sessionbox/pkg/store"
	"golang.org/x/sys/unix"
)

// strayPasses bounds the search. What is not caught in so many passes forks
// faster than it is found, and is reported as a survivor.
const strayPasses = 20

// cleanPasses is how many searches in a row must find nobody before that is
// believed: a /proc reading is not atomic, and one snapshot misses forks.
const cleanPasses = 2

// swept is what the search for strays found.
type swept struct {
	ended    []Fated         // strays, with their fate
	suspects []Process       // carry the cookie and are not ended, see search.suspect
	left     []proc.Survivor // strays that are still there
	notes    []string
}

// endStrays finds and ends the session's processes outside its box: same user,
// and the session's random cookie in the environment they were started with. It
// leaves alone ourselves and our ancestors, whom it names: a closer may carry
// the cookie, too. skip are pids that are accounted for otherwise.
//
// The kill of a lineage box has looked for the cookie itself, and knows what has better claims:
// of one only what our questions to engines left behind is ended.
func (m *Manager) endStrays(ctx context.Context, rec *store.Session, skip map[int]bool, dry bool, now uint64) (swept, error) {
	var w swept
	if rec.Cookie == "" {
		w.notes = append(w.notes, "its cookie is not known, so strays were not looked for")
		return w, nil
	}
	if err := proc.OwnNamespace(); err != nil {
		return w, err
	}
	safe, err := ancestors()
	if err != nil {
		return w, err
	}
	s := search{cookie: rec.Cookie, began: now, onlyAsked: rec.Kind == store.KindLineage, safe: safe, skip: skip, kept: m.keptIn(rec.ID), spared: map[int]string{}}
	known := map[proc.ID]bool{}
	clean := 0
	var last proc.Survivor
	for pass := 0; pass < strayPasses && clean < cleanPasses; pass++ {
		found, restless, err := s.pass()
		if err != nil {
			return w, err
		}
		clean++
		if restless {
			clean = 0
		}
		w.left = nil
		for _, f := range found {
			clean = 0
			last = survivor(f.id.PID)
			if !known[f.id] && !f.asked {
				known[f.id] = true
				if p, ok := describe(f.id.PID, named, now); ok && p.Start == f.id.Start {
					w.ended = append(w.ended, Fated{Process: p, Fate: FateKilled})
				}
			}
			if !dry && !f.end(ctx) {
				w.left = append(w.left, survivor(f.id.PID))
			}
			f.h.Close()
		}
		if dry || ctx.Err() != nil {
			break
		}
	}
	if !dry && clean < cleanPasses && len(w.left) == 0 {
		last.Comm += " (forks faster than it can be caught)"
		w.left = append(w.left, last)
	}
	w.settle(dry)
	w.suspects = s.suspects
	for pid, why := range s.spared {
		w.notes = append(w.notes, fmt.Sprintf("process %d carries the session's cookie and was left alone: %s", pid, why))
	}
	return w, nil
}

// settle gives each stray its fate.
func (w *swept) settle(dry bool) {
	for i := range w.ended {
		if dry {
			w.ended[i].Fate = fateAlive
		}
		for _, l := range w.left {
			if l.PID == w.ended[i].PID && l.Start == w.ended[i].Start {
				w.ended[i].Fate = FateSurvived
			}
		}
	}
}

// stray is a carrier of the cookie that is held by a pidfd.
type stray struct {
	id proc.ID
	h  *proc.Handle
	// asked: it is left of a question of ours to an engine, and nobody's that the session started.
	asked bool
}

// end kills it and says whether it is gone.
func (f *stray) end(ctx context.Context) bool {
	if err := f.h.Signal(unix.SIGKILL); err != nil {
		return errors.Is(err, proc.ErrGone)
	}
	wait, cancel := context.WithTimeout(ctx, time.Second)
	defer cancel()
	return f.h.Wait(wait) == nil
}

// search looks for carriers of a cookie.
type search struct {
	cookie string
	began  uint64 // when the close did, in ticks
	// onlyAsked looks for what our questions to engines left behind alone.
	onlyAsked bool
	safe      map[int]bool
	skip      map[int]bool
	// kept says whether a session holds what was kept of the one that is closed.
	kept func(session string) bool

	mu       sync.Mutex
	restless bool           // somebody ended while being looked at
	spared   map[int]string // pid → why
	suspects []Process
}

// pass reads every environment once, and says whether the picture was blurred: a
// carrier that ended meanwhile may have left a child that was not listed.
func (s *search) pass() (strays []stray, restless bool, err error) {
	pids, err := proc.PIDs()
	if err != nil {
		return nil, false, err
	}
	s.restless, s.suspects = false, nil
	pids = slices.DeleteFunc(pids, func(pid int) bool { return pid <= 1 || s.skip[pid] })
	found := make([]*stray, len(pids))
	each(len(pids), func(i int) { found[i] = s.look(pids[i]) })
	for _, f := range found {
		if f != nil {
			strays = append(strays, *f)
		}
	}
	return strays, s.restless, nil
}

// look tells whether a process is a stray. A match is pinned by a pidfd and read
// again, so that what is signalled is what carried the cookie.
func (s *search) look(pid int) *stray {
	uid := os.Geteuid()
	if owner, err := proc.UID(pid); err != nil || owner != uid && uid != 0 {
		return nil
	}
	if !s.carries(pid) || s.spare(pid) {
		return nil
	}
	h, err := proc.OpenPID(pid)
	if err == nil {
		st, serr := proc.ReadStat(pid)
		// A zombie that still shows an environment has live threads: see proc.Env.
		if serr == nil && st.State != 'X' && s.carries(pid) {
			env, _ := proc.Env(pid, engines.EnvAsked)
			return &stray{id: proc.ID{PID: pid, Start: st.Start}, h: h, asked: env[engines.EnvAsked] == s.cookie && st.Start >= s.began}
		}
		h.Close()
	}
	s.mu.Lock()
	s.restless = true
	s.mu.Unlock()
	return nil
}

func (s *search) carries(pid int) bool {
	env, err := proc.Env(pid, EnvCookie, engines.EnvAsked)
	return err == nil && (env[EnvCookie] == s.cookie && !s.onlyAsked || env[engines.EnvAsked] == s.cookie)
}

// spare says whether a carrier is not to be ended, and notes why.
func (s *search) spare(pid int) bool {
	why := ""
	env, _ := proc.Env(pid, EnvKeep)
	switch {
	case pid == os.Getpid():
		return true
	case s.isKept(pid):
		return true // it is the other session's
	case s.safe[pid]:
		why = "it is an ancestor of the closer"
	case env[EnvKeep] == "1":
		why = EnvKeep + "=1"
	case isCloser(pid):
		return true // it ends by itself
	default:
		// One whose very unit carries it was asked for in the session.
		if unit := startedByManager(pid); unit != "" && !unitCarries(unit, s.cookie) {
			why = "the user manager started it, as " + unit
			if p, ok := describe(pid, named, ticksNow()); ok {
				s.mu.Lock()
				s.suspects = append(s.suspects, p)
				s.mu.Unlock()
			}
		}
	}
	if why == "" {
		return false
	}
	s.mu.Lock()
	s.spared[pid] = why
	s.mu.Unlock()
	return true
}

// isKept says whether a process is in the box of a session that holds what was kept.
func (s *search) isKept(pid int) bool {
	cg, err := proc.Cgroup(pid)
	return err == nil && slices.ContainsFunc(idsOfPath(cg), s.kept)
}

// keptIn gives the way to tell whether a session holds what was kept of another: by its
// record, or the copy of it on its box.
func (m *Manager) keptIn(from string) func(string) bool {
	var mu sync.Mutex
	known := map[string]bool{}
	return func(id string) bool {
		mu.Lock()
		defer mu.Unlock()
		is, ok := known[id]
		if !ok {
			rec, _, err := m.load(id)
			is = err == nil && slices.Contains(rec.KeptFrom, from)
			known[id] = is
		}
		return is
	}
}

// isCloser says whether a process is this very program, closing: several may
// close a session from inside at once, and step out of it with its cookie.
func isCloser(pid int) bool {
	argv := proc.Args(pid)
	return len(argv) > 1 && argv[1] == "close" && proc.SameProgram(pid)
}

// startedByManager names the user's service that a process belongs to, if any. A
// session may put its environment into the user manager's (an import-environment
// of a desktop does): services started from then on carry its cookie though they
// are nobody's. The services of boxes are not meant.
func startedByManager(pid int) string {
	cg, err := proc.Cgroup(pid)
	if err != nil {
		return ""
	}
	_, below, ok := strings.Cut(cg, fmt.Sprintf("/user@%d.service/", os.Geteuid()))
	if !ok || strings.Contains(below, cgroup.Base+"/") {
		return ""
	}
	for part := range strings.SplitSeq(below, "/") {
		if strings.HasSuffix(part, ".service") {
			return part
		}
	}
	return ""
}

// ancestors are ourselves and those we descend from: they are never signalled on
// evidence such as a cookie.
func ancestors() (map[int]bool, error) {
	for range 10 {
		chain := map[int]bool{}
		pid := os.Getpid()
		for pid > 1 {
			chain[pid] = true
			st, err := proc.ReadStat(pid)
			if errors.Is(err, proc.ErrGone) {
				break // it ended just now, its children were given to another
			}
			if err != nil {
				return nil, err
			}
			pid = st.PPID
		}
		if pid <= 1 {
			return chain, nil
		}
	}
	return nil, errors.New("our own ancestors cannot be told: they keep ending")
}

func survivor(pid int) proc.Survivor {
	s := proc.Survivor{PID: pid, State: "?", UID: -1}
	if st, err := proc.ReadStat(pid); err == nil {
		s.Start, s.Comm, s.State = st.Start, st.Comm, string(st.State)
		s.Wchan = proc.Wchan(pid)
		s.UID, _ = proc.UID(pid)
	}
	return s
}
