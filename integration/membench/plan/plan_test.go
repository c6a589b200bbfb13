package plan

import (
	"slices"
	"testing"
)

// TestScenarios: what is expected speaks of sessions that are there, and each run can end
// as it is expected to.
func TestScenarios(t *testing.T) {
	seen := map[string]bool{}
	for _, s := range All() {
		if seen[s.Name] || s.Name == "" || s.Title == "" || s.Length == 0 || s.Host.MemoryMiB == 0 {
			t.Errorf("scenario %q is seen twice, or says too little", s.Name)
		}
		seen[s.Name] = true
		names := s.Expect.Victims
		for _, n := range []string{s.Expect.First, s.Expect.Never} {
			if n != "" {
				names = append(slices.Clip(names), n)
			}
		}
		for _, n := range names {
			if s.Session(n) == nil {
				t.Errorf("scenario %s has no session %s", s.Name, n)
			}
		}
		if s.Expect.OOM && (s.Expect.Lead == 0 || s.Expect.Blame == "") {
			t.Errorf("scenario %s runs out of memory, and nobody is to say so", s.Name)
		}
		if !s.Expect.OOM && s.Expect.Lead != 0 {
			t.Errorf("scenario %s has a lead before nothing", s.Name)
		}
		for _, d := range s.Deeds {
			if (d.At == 0) == (d.On == "") || (len(d.Args) == 0) == (d.Do == "") || d.At > s.Length {
				t.Errorf("scenario %s: deed %+v", s.Name, d)
			}
		}
		for _, x := range s.Sessions {
			if x.Sum() == 0 {
				t.Errorf("scenario %s: session %s does nothing", s.Name, x.Name)
			}
			for _, a := range x.Actors {
				if a.First > a.UpTo {
					t.Errorf("scenario %s: %+v begins beyond its end", s.Name, a)
				}
				if a.Rate > 0 && s.Expect.OOM && a.Steady >= a.UpTo && a.UpTo > a.First {
					t.Errorf("scenario %s: the rate of %+v is never looked at", s.Name, a)
				}
			}
		}
		got, ok := Find(s.Name)
		if !ok || got.Title != s.Title {
			t.Errorf("Find(%q) = %q, %t", s.Name, got.Title, ok)
		}
	}
	if _, ok := Find("99"); ok {
		t.Error("there is a scenario 99")
	}
}
