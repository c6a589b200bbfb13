//go:build !linux

package session

import (
	"context"
	"os/exec"
	"runtime"
	"syscall"
	"time"

	"github.com/sessionbox/sessionbox/pkg/internal/proc"
	"github.com/sessionbox/sessionbox/pkg/memlimit"
	"github.com/sessionbox/sessionbox/pkg/store"
)

// There is no box of this version on this system: opening a session says so,
// and what works on records alone works.

const helperLeaf = "anchor"

// SuperviseArg is the first argument of a process that there is none of.
const SuperviseArg = "__supervise"

type detail int

const (
	brief detail = iota
	named
	full
)

// controllerFix has nothing to say: the kernel has no ceilings.
func controllerFix(bool, string, ...string) string { return "" }

// logged knows nothing: what the system kills is in no log of ours.
func logged(*store.Task) *memlimit.Kill { return nil }

func noBox() error {
	return &Error{Kind: ErrUnsupported, Text: "no kind of box is available on " + runtime.GOOS,
		Hint: "sessionbox " + runtime.GOOS + " support is the lineage box, which this version does not have"}
}

// Helper runs this process as one of the package's helpers; there are none here.
func Helper([]string) (code int, done bool) { return 0, false }

// StartDetached needs a box.
func (s *Session) StartDetached(context.Context, *exec.Cmd, StartOptions) (*Session, int, error) {
	return nil, 0, noBox()
}

// Adopt needs a box.
func (s *Session) Adopt(context.Context, []Root, AdoptOptions) (Adopted, error) {
	return Adopted{Schema: Schema, Session: s.rec.ID, Processes: []AdoptedProcess{}, Skipped: []SkippedProcess{}}, noBox()
}

func (m *Manager) thawAbandoned(*store.Session, Box) {}

func (m *Manager) makeBox(context.Context, *store.Session, place, aggregate) (Box, error) {
	return nil, noBox()
}

func (m *Manager) openBox(*store.Session) (Box, error)              { return nil, ErrBoxGone }
func (m *Manager) mayJudge(*store.Session) error                    { return nil }
func frozenAt(string) (bool, error)                                 { return false, nil }
func isMember(Box, string, int) bool                                { return false }
func ancestors() (map[int]bool, error)                              { return nil, proc.ErrUnsupported }
func idsOfPath(string) []string                                     { return nil }
func (m *Manager) findBoxes(map[string]store.Kind) []found          { return nil }
func (m *Manager) unrecorded(map[string]store.Kind) []found         { return nil }
func (m *Manager) children(*store.Session, Box) []string            { return nil }
func (c *closing) stepOut(context.Context, string) error            { return nil }
func (m *Manager) turn(context.Context, time.Duration) func()       { return func() {} }
func (m *Manager) removeUnit(context.Context, *store.Session) error { return nil }
func (c *closing) sweepUp()                                         {}
func (c *closing) lastWords(context.Context)                        {}
func ownSession() []string                                          { return nil }
func (m *Manager) startGuard(ctx context.Context, helper string) error {
	return m.spawnGuard(ctx, helper)
}

// Detach makes the calling process independent of whoever started it; here nothing
// holds it.
func Detach(...int) error { return nil }

func hostTotals() memlimit.Totals                        { return memlimit.Totals{} }
func machineID() string                                  { return "" }
func isHelper(proc.Member) bool                          { return false }
func nestedLeaf(string) bool                             { return false }
func isUnitLeft(error) bool                              { return false }
func ticksNow() uint64                                   { return 0 }
func ports([]int) map[int][]Port                         { return nil }
func describe(int, detail, uint64) (Process, bool)       { return Process{}, false }
func signalGroup(Box, string, int, syscall.Signal) error { return proc.ErrUnsupported }
func signalName(s syscall.Signal) string                 { return s.String() }

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
