package store

import (
	"errors"
	"os"
	"path/filepath"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestResolve(t *testing.T) {
	s := testStore(t)
	claim := func(id, name string, state State) {
		rec := newSession(name)
		rec.ID, rec.State = id, state
		mustClaim(t, s, rec)
	}
	claim("aaaa000001", "web", StateOpen)
	claim("aaaa000002", "web-2", StateOpen)
	claim("bbbb000003", "", StateOpen)
	claim("cccc000004", "aaaa", StateOpen)
	claim("dddd000005", "job-1", StateClosed)
	claim("dddd000006", "job-2", StateOpen)
	claim("eeee000007", "old-1", StateClosed)
	claim("eeee000008", "old-2", StateClosed)
	for ref, want := range map[string]string{
		"web": "aaaa000001", "aaaa000002": "aaaa000002", "b": "bbbb000003", "web-": "aaaa000002",
		"aaaa":       "cccc000004", // a full name before prefixes of ids
		"job":        "dddd000006", // the one not closed
		"job-1":      "dddd000005", // but a full name is a full name
		"dddd00000":  "dddd000006",
		"eeee000007": "eeee000007",
	} {
		if id, err := s.Resolve(ref); err != nil || id != want {
			t.Errorf("Resolve(%q) = %q, %v; want %s", ref, id, err, want)
		}
	}
	for ref, want := range map[string][]Match{
		"we":  {{"aaaa000001", "web"}, {"aaaa000002", "web-2"}},
		"aa":  {{"aaaa000001", "web"}, {"aaaa000002", "web-2"}, {"cccc000004", "aaaa"}},
		"old": {{"eeee000007", "old-1"}, {"eeee000008", "old-2"}},
	} {
		_, err := s.Resolve(ref)
		amb, ok := errors.AsType[*AmbiguousError](err)
		if !ok || !errors.Is(err, ErrAmbiguous) {
			t.Errorf("Resolve(%q) = %v, want ambiguous", ref, err)
			continue
		}
		if diff := cmp.Diff(want, amb.Matches); diff != "" {
			t.Errorf("Resolve(%q) (-want +got):\n%s", ref, diff)
		}
	}
	for _, ref := range []string{"", ".", "nope", "../names", "web/1", "aaaa000009", "zzzzzzzzzz", "web\x00"} {
		if id, err := s.Resolve(ref); !errors.Is(err, ErrNotFound) {
			t.Errorf("Resolve(%q) = %q, %v", ref, id, err)
		}
	}
}

// A lost symlink costs time, and must not send anyone to a session whose name
// merely starts alike.
func TestResolveWithoutLinks(t *testing.T) {
	s := testStore(t)
	web, web2 := mustClaim(t, s, newSession("web")), mustClaim(t, s, newSession("web-2"))
	link := filepath.Join(s.namesDir(), "web")
	check := func(what string) {
		t.Helper()
		for name, want := range map[string]string{"web": web.ID, "web-2": web2.ID, "web-": web2.ID} {
			if id, err := s.Resolve(name); err != nil || id != want {
				t.Errorf("%s: Resolve(%s) = %s, %v; want %s", what, name, id, err, want)
			}
		}
	}
	os.Remove(link)
	check("removed")
	os.Symlink(NewID(), link)
	check("dangling")
	os.RemoveAll(s.namesDir())
	check("no names at all")
}
