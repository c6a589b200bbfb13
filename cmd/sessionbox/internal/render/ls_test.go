package render

import (
	"testing"

	"github.com/sessionbox/sessionbox/pkg/session"
	"github.com/sessionbox/sessionbox/pkg/store"
)

// The list says of an open session what holds it.
func TestBoxCell(t *testing.T) {
	for _, c := range []struct {
		containment, want string
		frozen            bool
	}{{session.ByKernel, "lineage", false}, {session.BestEffort, "lineage (best effort)", false},
		{session.ByCoalition, "lineage (coalition)", false}, {session.ByCoalition, "frozen", true}} {
		i := session.Info{State: string(store.StateOpen), Box: session.BoxInfo{Kind: "lineage", Containment: c.containment, Frozen: c.frozen}}
		if got := boxCell(&i).text; got != c.want {
			t.Errorf("%s: %q, want %q", c.containment, got, c.want)
		}
	}
}
