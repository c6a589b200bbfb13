package guard

import (
	"errors"
	"time"

	"github.com/sessionbox/sessionbox/pkg/internal/proc"
	"github.com/sessionbox/sessionbox/pkg/memlimit"
	"github.com/sessionbox/sessionbox/pkg/session"
)

// lineageMeter measures a session that no cgroup holds: nothing wakes who waits for it, and
// each look reads the process table.
type lineageMeter struct {
	id  string
	ask func(id string) (session.Holding, error)
	exactly
	last   []memlimit.Process // of the last look
	summed time.Duration
	ticks  uint64 // of the processor that they had used by then
}

var _ meter = (*lineageMeter)(nil)

func (m *lineageMeter) Sample(out *memlimit.Sample) error {
	at := proc.Clock()
	h, err := m.ask(m.id)
	if errors.Is(err, session.ErrNotFound) {
		return errGone
	}
	if err != nil {
		return err
	}
	m.last, m.summed = h.Processes, at
	m.ticks, _ = m.used()
	m.exact(m.last, at)
	*out = memlimit.Sample{At: at, Max: memlimit.Infinity, SwapMax: memlimit.Infinity, Frozen: h.Frozen}
	memlimit.FillProcesses(out, m.last)
	out.Done = proc.Clock()
	return nil
}

// used adds up the processor time of those that were seen; not ok when one of them is gone.
func (m *lineageMeter) used() (ticks uint64, ok bool) {
	for i := range m.last {
		st, err := proc.ReadStat(m.last[i].PID)
		if err != nil || st.Start != m.last[i].Start {
			return 0, false
		}
		ticks += st.UserTicks + st.SystemTicks
	}
	return ticks, true
}

// lineageRest is how long a look serves while those that it showed do nothing: what they
// started in less than a tick of the processor is seen after it at the latest.
const lineageRest = 10 * time.Second

func (m *lineageMeter) Still(out *memlimit.Sample) bool {
	now := proc.Clock()
	if m.summed == 0 || now-m.summed >= lineageRest {
		return false
	}
	if ticks, ok := m.used(); !ok || ticks != m.ticks {
		return false
	}
	out.At, out.Done = now, now
	return true
}

func (m *lineageMeter) Fresh() { m.summed = 0 }

func (m *lineageMeter) CPU() (time.Duration, bool) { return 0, false } // it is not hibernated

func (m *lineageMeter) Processes() []memlimit.Process { return m.last }

func (m *lineageMeter) Close() error { return nil }
