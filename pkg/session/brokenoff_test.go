package session

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	"github.com/sessionbox/sessionbox/pkg/internal/proc"
)

func fated(pid int, fate string) Fated {
	return Fated{Process: Process{PID: pid, Start: 7}, Fate: fate}
}

// What an earlier close told stays told, once; who was left then, and is not found any more,
// has ended.
func TestResumeReceipt(t *testing.T) {
	peak := uint64(5)
	inner := Receipt{ID: "inner", Error: "1 survived", Processes: []Fated{fated(10, FateSurvived)}, Survivors: []proc.Survivor{{PID: 10}}}
	earlier := Receipt{
		Processes:  []Fated{fated(1, FateEnded), fated(2, fateAlive), fated(3, FateSurvived)},
		Containers: []HiredContainer{{Engine: "docker", ID: "a", Fate: FateRemoved}, {Engine: "docker", ID: "b", Fate: FateSurvived}, {Engine: "docker", ID: "c", Fate: FateSuspect}, {Engine: "podman", Fate: FateSurvived}},
		Jobs:       []JobInfo{{Kind: "at", Fate: FateSurvived}, {Kind: "at", ID: "3", Fate: FateSurvived}},
		Kept:       []Process{{PID: 9}},
		Notes:      []string{"first", "both"},
		Nested:     []Receipt{inner, {ID: "again", Error: "x", Processes: []Fated{fated(20, FateSurvived)}}},
		Usage:      UsageInfo{PeakBytes: &peak},
	}
	now := Receipt{
		Processes:  []Fated{fated(3, FateKilled), fated(4, FateKilled)},
		Containers: []HiredContainer{{Engine: "docker", ID: "b", Fate: FateKilled}},
		Kept:       []Process{{PID: 9}},
		Notes:      []string{"both", "second"},
		Nested:     []Receipt{{ID: "again", Processes: []Fated{fated(20, FateKilled)}}},
	}
	now.resume(&earlier, true, true)
	want := Receipt{
		Processes:  []Fated{fated(1, FateEnded), fated(2, FateEnded), fated(3, FateKilled), fated(4, FateKilled)},
		Containers: []HiredContainer{{Engine: "docker", ID: "a", Fate: FateRemoved}, {Engine: "docker", ID: "c", Fate: FateSuspect}, {Engine: "docker", ID: "b", Fate: FateKilled}},
		Jobs:       []JobInfo{{Kind: "at", ID: "3", Fate: FateEnded}},
		Kept:       []Process{{PID: 9}},
		Notes:      []string{"first", "both", "second"},
		Nested: []Receipt{
			{ID: "inner", Processes: []Fated{fated(10, FateEnded)}},
			{ID: "again", Processes: []Fated{fated(20, FateKilled)}},
		},
		Usage: UsageInfo{PeakBytes: &peak},
	}
	if diff := cmp.Diff(want, now, cmp.AllowUnexported(Process{}), cmpopts.EquateEmpty()); diff != "" {
		t.Errorf("-want +got:\n%s", diff)
	}
	if !now.Clean() {
		t.Error("it is not clean for what an earlier close could not do")
	}
}

// A close that failed before it had looked knows no better than the one before it.
func TestResumeFailed(t *testing.T) {
	earlier := Receipt{
		Processes:  []Fated{fated(2, FateEnded), fated(3, FateSurvived)},
		Survivors:  []proc.Survivor{{PID: 3, Start: 7}},
		Strays:     []Fated{fated(4, FateSurvived)},
		Containers: []HiredContainer{{Engine: "docker", ID: "b", Fate: FateSurvived, Why: "no answer"}},
		Jobs:       []JobInfo{{Kind: "at", ID: "1", Fate: FateSurvived}},
		Nested:     []Receipt{{ID: "inner", Error: "1 survived", Processes: []Fated{fated(10, FateSurvived)}, Survivors: []proc.Survivor{{PID: 10}}}},
	}
	for name, c := range map[string]struct {
		judged bool
		want   func(*Receipt)
	}{
		"at once": {false, func(*Receipt) {}},
		"after the box": {true, func(r *Receipt) {
			r.Processes, r.Survivors = []Fated{fated(2, FateEnded), fated(3, FateEnded)}, nil
		}},
	} {
		t.Run(name, func(t *testing.T) {
			want := earlier
			c.want(&want)
			var now Receipt
			now.resume(&earlier, false, c.judged)
			if diff := cmp.Diff(want, now, cmp.AllowUnexported(Process{}), cmpopts.EquateEmpty()); diff != "" {
				t.Errorf("-want +got:\n%s", diff)
			}
		})
	}
}
