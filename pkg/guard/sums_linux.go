package guard

import (
	"time"

	"github.com/sessionbox/sessionbox/pkg/cgroup"
	"github.com/sessionbox/sessionbox/pkg/internal/proc"
	"github.com/sessionbox/sessionbox/pkg/memlimit"
)

// exactly remembers what processes share, which is too dear to be asked each time.
type exactly struct {
	// shared is what the processes that were last asked do not hold alone.
	shared map[proc.ID]uint64
	asked  time.Duration
}

// exactRest is between two times that processes are asked what they share: it stops
// them for a moment.
const exactRest = 30 * time.Second

// exact takes off what the biggest processes share with others. In between it is taken
// for the same: else the sum would jump each time.
func (e *exactly) exact(all []memlimit.Process, now time.Duration) {
	if len(all) < 2 {
		return // nobody to share with
	}
	if e.asked == 0 || now-e.asked >= exactRest {
		e.asked = now
		e.shared = map[proc.ID]uint64{}
		before := map[proc.ID]uint64{}
		for i := range all {
			before[idOf(&all[i])] = all[i].Hard()
		}
		cgroup.Exact(all)
		for i := range all {
			if p := &all[i]; p.Exact {
				e.shared[idOf(p)] = before[idOf(p)] - min(before[idOf(p)], p.Hard())
			}
		}
		return
	}
	for i := range all {
		p := &all[i]
		off := e.shared[idOf(p)]
		shmem := min(p.Shmem, off)
		p.Shmem -= shmem
		p.Anon -= min(p.Anon, off-shmem)
	}
}

func idOf(p *memlimit.Process) proc.ID { return proc.ID{PID: p.PID, Start: p.Start} }
