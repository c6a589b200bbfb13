//go:build !linux

package session

import (
	"context"
	"errors"
	"fmt"
	"os"
	"runtime"
	"strings"
	"syscall"
	"time"

	"github.com/sessionbox/sessionbox/pkg/darwinjob"
	"github.com/sessionbox/sessionbox/pkg/internal/proc"
	"github.com/sessionbox/sessionbox/pkg/memlimit"
	"github.com/sessionbox/sessionbox/pkg/store"
	"golang.org/x/sys/unix"
)

// There is one kind of box on this system, the lineage box.

// helperLeaf is where our own processes in a box are listed.
const helperLeaf = "anchor"

// controllerFix has nothing to say: the kernel has no ceilings.
func controllerFix(bool, string, ...string) string { return "" }

// logged knows nothing: what the system kills is in no log of ours.
func logged(*store.Task) *memlimit.Kill { return nil }

// notHere says that something needs a box that the kernel keeps.
func notHere(what string) error {
	return &Error{Kind: ErrUnsupported, Text: what + " is not possible on " + runtime.GOOS,
		Hint: "the lineage box, which is the only one here, cannot do it"}
}

// helpOut: no helper of this system is started otherwise.
func helpOut([]string) (code int, done bool) { return 0, false }

// Adopt needs a box that processes can be moved to.
func (s *Session) Adopt(context.Context, []Root, AdoptOptions) (Adopted, error) {
	return Adopted{Schema: Schema, Session: s.rec.ID, Processes: []AdoptedProcess{}, Skipped: []SkippedProcess{}}, notHere("adopting running processes")
}

func (m *Manager) thawAbandoned(*store.Session, Box) {}

func (m *Manager) makeBox(_ context.Context, rec *store.Session, at place, _ aggregate) (Box, error) {
	if rec.Kind != "" && rec.Kind != store.KindLineage {
		return nil, notHere("a box of kind " + string(rec.Kind))
	}
	if at.kernel {
		return nil, notHere("a box that the kernel enforces")
	}
	rec.Kind = store.KindLineage
	b, err := m.makeLineage(rec, at)
	if err != nil {
		return nil, err
	}
	return b, nil
}

func (m *Manager) openBox(rec *store.Session) (Box, error) {
	if err := m.mayJudge(rec); err != nil {
		return nil, err
	}
	if rec.Kind != store.KindLineage {
		return nil, fmt.Errorf("a box of kind %q: %w", rec.Kind, ErrBoxGone)
	}
	b, err := m.openLineage(rec)
	if err != nil {
		return nil, err
	}
	return b, nil
}

// mayJudge says whether what this kernel shows is about the session at all.
func (m *Manager) mayJudge(rec *store.Session) error {
	if boot, err := m.boot(); rec.Boot != "" && err == nil && boot != rec.Boot {
		return fmt.Errorf("session %s ran before the last boot: %w", rec.ID, ErrBoxGone)
	}
	return nil
}

func frozenAt(string) (bool, error)                               { return false, nil }
func idsOfPath(string) []string                                   { return nil }
func (m *Manager) findBoxes(known map[string]store.Kind) []found  { return m.findLineages(known) }
func (m *Manager) unrecorded(known map[string]store.Kind) []found { return m.findLineages(known) }

// programPIDs are the processes that may run our program.
func programPIDs() []int {
	t, err := darwinjob.System()
	if err != nil {
		return nil
	}
	s, err := t.List(context.Background())
	if err != nil {
		return nil
	}
	var pids []int
	for i := range s.Procs {
		if p := &s.Procs[i]; p.PID > 1 && p.UID == os.Geteuid() && p.State != darwinjob.Zombie {
			pids = append(pids, p.PID)
		}
	}
	return pids
}

func (m *Manager) children(rec *store.Session, _ Box) []string { return m.recordedInside(rec, "") }

func (c *closing) stepOut(context.Context, string) error            { return nil }
func (m *Manager) turn(context.Context, time.Duration) func()       { return func() {} }
func (m *Manager) removeUnit(context.Context, *store.Session) error { return nil }
func (c *closing) sweepUp()                                         {}
func (c *closing) lastWords(context.Context)                        {}
func ownSession() []string                                          { return lineageSessions() }
func (m *Manager) startGuard(ctx context.Context, helper string) error {
	return m.spawnGuard(ctx, helper)
}

// Detach makes the calling process independent of whoever started it; here nothing
// holds it.
func Detach(...int) error { return nil }

func hostTotals() memlimit.Totals {
	n, err := unix.SysctlUint64("hw.memsize")
	if err != nil {
		return memlimit.Totals{}
	}
	return memlimit.Totals{Memory: n}
}

func machineID() string                  { return "" }
func isUnitLeft(err error) bool          { return errors.Is(err, errJobLeft) }
func ports([]int) map[int][]Port         { return nil }
func signalName(s syscall.Signal) string { return unix.SignalName(s) }

// nestedLeaf says whether a place in the box belongs to a session inside it.
func nestedLeaf(leaf string) bool {
	return strings.HasPrefix(leaf, "sessionbox-") && strings.Contains(leaf, ".slice")
}

// isHelper says whether a member is one of our own.
func isHelper(m proc.Member) bool { return m.Leaf == helperLeaf }

// ticksPerSecond is the unit of start times, see package proc.
const ticksPerSecond = 1_000_000

func ticksNow() uint64 { return uint64(time.Now().UnixMicro()) }

// ancestors are ourselves and those we descend from.
func ancestors() (map[int]bool, error) {
	chain := map[int]bool{}
	for pid := os.Getpid(); pid > 1; {
		chain[pid] = true
		st, err := proc.ReadStat(pid)
		if errors.Is(err, proc.ErrGone) {
			return chain, nil
		}
		if err != nil {
			return nil, err
		}
		pid = st.PPID
	}
	return chain, nil
}

// endStrays has nothing to do: the kill of a lineage box looks for the cookie itself.
func (m *Manager) endStrays(context.Context, *store.Session, map[int]bool, bool, uint64) (swept, error) {
	return swept{}, nil
}

const closeTurn = 0

type swept struct {
	ended    []Fated
	suspects []Process
	left     []proc.Survivor
	notes    []string
}
