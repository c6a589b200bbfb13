package guard

import (
	"os"
	"time"

	"github.com/sessionbox/sessionbox/pkg/cgroup"
	"github.com/sessionbox/sessionbox/pkg/internal/proc"
	"github.com/sessionbox/sessionbox/pkg/memlimit"
)

var _ meter = (*meter1)(nil)

// around1 is the group of cgroup v1 that we are charged to, if it has a limit: on a
// hybrid host, or in a container of one, that is what sessions run into that were
// opened from where we were started.
func around1() string {
	m, err := cgroup.FindMemory1()
	if err != nil {
		return ""
	}
	dir, err := m.Dir(os.Getpid())
	if err != nil {
		return ""
	}
	s, err := cgroup.OpenSampler1(dir)
	if err != nil {
		return ""
	}
	defer s.Close()
	var got memlimit.Sample
	if s.Sample(&got) != nil || got.Max == memlimit.Infinity {
		return ""
	}
	return dir
}

// meter1 measures a group of cgroup v1 around sessions.
type meter1 struct{ sampler *cgroup.Sampler1 }

func (m *meter1) Sample(out *memlimit.Sample) error { return m.sampler.Sample(out) }

func (m *meter1) Still(*memlimit.Sample) bool { return false }

func (m *meter1) Fresh() {}

func (m *meter1) CPU() (time.Duration, bool) { return 0, false }

func (m *meter1) Processes() []memlimit.Process { return nil }

func (m *meter1) Close() error { return m.sampler.Close() }

// alone1 is a session's group of cgroup v1, if it has one to itself: that knows more
// than the sum over its processes.
type alone1 struct {
	hierarchy cgroup.Memory1
	dir       string
	sampler   *cgroup.Sampler1 // nil: it shares it
	looked    time.Duration
}

// find looks, now and then, whether it has one.
func (a *alone1) find(all []memlimit.Process, now time.Duration) {
	a.looked = now
	dir := ""
	if len(all) > 0 {
		if d, err := a.hierarchy.Dir(all[0].PID); err == nil && a.hierarchy.Alone(d, all) {
			dir = d
		}
	}
	if dir == a.dir {
		return
	}
	a.close()
	if dir == "" {
		return
	}
	if s, err := cgroup.OpenSampler1(dir); err == nil {
		a.dir, a.sampler = dir, s
	}
}

// sample takes the amounts; what v1 does not know stays.
func (a *alone1) sample(out *memlimit.Sample) bool {
	if a.sampler == nil {
		return false
	}
	var got memlimit.Sample
	if a.sampler.Sample(&got) != nil {
		a.close()
		return false
	}
	got.At, got.Pressure, got.Frozen = out.At, out.Pressure, out.Frozen
	got.Done = proc.Clock()
	*out = got
	return true
}

func (a *alone1) close() {
	if a.sampler != nil {
		a.sampler.Close()
		a.sampler = nil
	}
	a.dir = ""
}
