package store

import (
	"errors"
	"testing"
)

func TestErrorTexts(t *testing.T) {
	cause := errors.New("cause")
	for want, err := range map[string]error{
		`name "web" is held by session aaaaaaaaaa`:              &NameTakenError{Name: "web", ID: "aaaaaaaaaa"},
		`"a" fits 2 sessions: aaaaaaaaaa, web (abbbbbbbbb)`:     &AmbiguousError{Ref: "a", Matches: []Match{{ID: "aaaaaaaaaa"}, {"abbbbbbbbb", "web"}}},
		`bad record /s/session.json: cause`:                     &BadRecord{ID: "aaaaaaaaaa", Path: "/s/session.json", Err: cause},
		`history /h/history-2026-07.jsonl: cause`:               &HistoryError{Path: "/h/history-2026-07.jsonl", Err: cause},
		`bad line at byte 7 of /h/history-2026-07.jsonl: cause`: &BadLine{Path: "/h/history-2026-07.jsonl", Offset: 7, Err: cause},
		`session "nope": not found`:                             resolveErr("nope"),
		`claim session: not a session name: want a letter or digit, then up to 63 of letters, digits, '.', '_', '-': "."`: claimErr(t),
	} {
		if err.Error() != want {
			t.Errorf("%q, want %q", err, want)
		}
	}
	for _, err := range []error{&BadRecord{Err: cause}, &HistoryError{Err: cause}, &BadLine{Err: cause}} {
		if !errors.Is(err, cause) {
			t.Errorf("%T hides its cause", err)
		}
	}
}

func resolveErr(ref string) error {
	s := &Store{dirs: Dirs{State: "/nowhere", History: "/nowhere"}}
	_, err := s.Resolve(ref)
	return err
}

func claimErr(t *testing.T) error {
	return testStore(t).Claim(t.Context(), newSession("."))
}
