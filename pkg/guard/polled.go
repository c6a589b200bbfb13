package guard

import (
	"errors"
	"time"

	"github.com/sessionbox/sessionbox/pkg/darwinjob"
	"github.com/sessionbox/sessionbox/pkg/internal/proc"
	"github.com/sessionbox/sessionbox/pkg/memlimit"
	"github.com/sessionbox/sessionbox/pkg/session"
)

// polled is the source where nothing is to be held and little wakes us: sessions are sums over
// their processes, and the machine says itself how short of memory it is (macOS).
//
// The kernel would send its level to a kqueue, but passes over who is smaller than 10 MB, and tells
// one process at a time (facts/memory.md, fact 9), so it is asked.
type polled struct {
	holding  func(id string) (session.Holding, error)
	pressure func() (darwinjob.Pressure, error)
	mac      memlimit.Mac
	level    int // when last asked
	woken    chan struct{}
}

var _ source = (*polled)(nil)

// newPolled fails where the machine does not say how short of memory it is.
func newPolled(holding func(id string) (session.Holding, error), pressure func() (darwinjob.Pressure, error)) (*polled, error) {
	p, err := pressure()
	if err != nil {
		return nil, err
	}
	return &polled{holding: holding, pressure: pressure, level: p.Level, woken: make(chan struct{}, 1)}, nil
}

func (p *polled) Session(w *session.MemoryWatch) (meter, error) {
	if w.Lineage == "" {
		return nil, proc.ErrUnsupported
	}
	return &lineageMeter{id: w.Lineage, ask: p.holding}, nil
}

// errNoGroups: there are no directories that count memory.
var errNoGroups = errors.New("this system counts memory of processes only")

func (p *polled) Around(string) []string      { return nil }
func (p *polled) Group(string) (meter, error) { return nil, errNoGroups }
func (p *polled) Hidden() bool                { return false }

// Host says of room in swap that there is none: what swap does for the machine is in the
// kernel's own scale, see [memlimit.Mac].
func (p *polled) Host(out *memlimit.Sample) (swapFree uint64, worth float64, err error) {
	at := proc.Clock()
	is, err := p.pressure()
	if err != nil {
		return 0, 0, err
	}
	p.level = is.Level
	*out = memlimit.Sample{At: at}
	f := memlimit.MacFigures{Level: is.Level, Total: is.TotalBytes, Available: float64(is.AvailablePercent) / 100,
		Compressor: is.CompressorBytes, Swap: is.SwapUsedBytes, SwapDisk: is.SwapDiskBytes}
	if is.CompressedLimit > 0 {
		f.Compressed = float64(is.CompressedPages) / float64(is.CompressedLimit)
	}
	p.mac.Fill(out, &f)
	out.Done = proc.Clock()
	return 0, memlimit.WorthDisk, nil
}

// Available comes in steps of 1 % of the machine: enough to be a reason to look.
func (p *polled) Available() (uint64, error) {
	is, err := p.pressure()
	return is.TotalBytes / 100 * uint64(is.AvailablePercent), err
}

// levelTime is how often the kernel's level is asked for while memory is watched.
const levelTime = time.Second

// Wait says that the host is to be looked at when the kernel's level has changed.
func (p *polled) Wait(until time.Duration) []meter {
	for {
		left := levelTime
		if until != 0 {
			left = min(left, until-proc.Clock())
		}
		if left <= 0 {
			return nil
		}
		if until == 0 { // nothing is watched
			<-p.woken
			return nil
		}
		tick := time.NewTimer(left)
		select {
		case <-p.woken:
			tick.Stop()
			return nil
		case <-tick.C:
		}
		if is, err := p.pressure(); err == nil && is.Level != p.level {
			p.level = is.Level
			return []meter{nil}
		}
	}
}

func (p *polled) Wake() {
	select {
	case p.woken <- struct{}{}:
	default: // it is awake
	}
}

func (p *polled) Close() error { return nil }
