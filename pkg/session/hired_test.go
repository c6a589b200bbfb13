package session

import (
	"testing"

	"github.com/sessionbox/sessionbox/pkg/store"
)

func TestShimConfig(t *testing.T) {
	m, err := New(Config{StateDir: t.TempDir(), NoGuard: true})
	if err != nil {
		t.Fatal(err)
	}
	for _, strict := range []bool{true, false} {
		if c := m.shimConfig(&store.Session{ID: "abcdefghij", Cookie: "c", Strict: strict}); c.Strict != strict || c.TableLock == "" || c.Cookie != "c" {
			t.Errorf("the shims of a session that is strict (%t) are told %+v", strict, c)
		}
	}
}
