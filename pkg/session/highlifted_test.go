package session

import (
	"strings"
	"testing"

	"github.com/sessionbox/sessionbox/pkg/memlimit"
	"github.com/sessionbox/sessionbox/pkg/store"
)

// nowhere is a box that is asked for its path only.
type nowhere struct{ Box }

func (nowhere) Path() string { return "/nowhere" }

// Of a memory.high that the guard has lifted it is said that it did and how to have it
// back, and nothing while the kernel has it for all that.
func TestHighLiftedIsSaid(t *testing.T) {
	rec := &store.Session{ID: "abcdefghij", Name: "work", Memory: &store.MemoryPolicy{Lifted: &store.Lifted{High: 200 << 20}}}
	want := memlimit.Limits{MemoryHigh: memlimit.Bytes(200 << 20)}
	for _, c := range []struct {
		kernel memlimit.Size
		lifted *store.Lifted
		why    string
	}{
		{memlimit.Max(), rec.Memory.Lifted, "the guard lifted it: the session stalled there"},
		{memlimit.Max(), nil, "the kernel has max"},
		{memlimit.Bytes(200 << 20), rec.Memory.Lifted, ""},
		{memlimit.Size{}, rec.Memory.Lifted, "memory controller not delegated"},
	} {
		rec.Memory.Lifted = c.lifted
		all := memlimit.Ceilings(want, memlimit.Limits{MemoryHigh: c.kernel})
		(&Manager{}).remark(rec, nowhere{}, all)
		if len(all) != 1 || all[0].Why != c.why || all[0].InForce != (c.why == "") {
			t.Errorf("the kernel has %q: %+v", c.kernel, all)
		}
		if says := strings.Contains(all[0].Fix, "sessionbox limit work --memory-high 200M"); says != strings.HasPrefix(c.why, "the guard") {
			t.Errorf("the kernel has %q: fix %q", c.kernel, all[0].Fix)
		}
	}
}
