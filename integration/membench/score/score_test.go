package score

import (
	"slices"
	"strings"
	"testing"

	"github.com/sessionbox/sessionbox/integration/membench/plan"
)

func scenario(t *testing.T, name string) *plan.Scenario {
	t.Helper()
	s, ok := plan.Find(name)
	if !ok {
		t.Fatalf("no scenario %s", name)
	}
	return &s
}

func begun(more ...Record) []Record {
	return append([]Record{{What: Ready, Text: "trixie"}, {What: Go}}, more...)
}

func ended(more ...Record) []Record {
	return append(begun(more...), Record{At: 45, What: End, Seconds: .3, N: 20})
}

func warned(at float64, name, level string) Record {
	return Record{At: at, What: Warned, Name: name, Level: level, Change: "raised"}
}

func acted(at float64, do, session string) Record {
	return Record{At: at, What: Acted, Do: do, Session: session, OK: true}
}

func TestJudge(t *testing.T) {
	const kill = 18.
	for _, c := range []struct {
		name, scenario string
		records        []Record
		kill           float64
		want           float64 // points
		invalid, why   string
		missed         int
	}{
		{
			name: "all is well", scenario: "1", kill: kill, want: 100,
			records: ended(Record{What: Rate, Ratio: .99}, warned(8, "a", "warn"), warned(14, "a", "critical"), acted(16, "freeze", "a")),
		},
		{
			name: "half the lead", scenario: "1", kill: kill, want: 82.5, missed: 1,
			records: ended(warned(13.5, "a", "warn"), warned(14, "a", "critical"), acted(16, "freeze", "a")),
		},
		{
			name: "too late is no lead", scenario: "1", kill: kill, want: 65, missed: 2,
			records: ended(warned(19, "a", "warn"), acted(20, "freeze", "a")),
		},
		{
			name: "nobody guards", scenario: "1", kill: kill, want: 50, missed: 3,
			records: ended(Record{At: kill, What: Killed, Session: "a"}, Record{At: kill, What: Died, Session: "a"}),
		},
		{
			name: "the wrong one, too", scenario: "1", kill: kill, want: 75,
			records: ended(warned(8, "a", "warn"), warned(14, "a", "critical"), acted(16, "freeze", "a"), acted(16, "freeze", "bystander")),
		},
		{
			name: "what was not done touched nobody", scenario: "1", kill: kill, want: 75,
			records: ended(warned(8, "a", "warn"), warned(14, "a", "critical"), Record{At: 16, What: Acted, Do: "freeze", Session: "a"}),
		},
		{
			name: "another is warned of", scenario: "1", kill: kill, want: 75,
			records: ended(warned(8, "a", "warn"), warned(9, plan.HostName, "warn"), warned(14, "a", "critical"), acted(16, "freeze", "a")),
		},
		{
			name: "a notice and an end are no warnings", scenario: "3", want: 100,
			records: ended(warned(8, "a", "notice"), Record{At: 9, What: Warned, Name: "a", Level: "warn", Change: "cleared"}, Record{What: Check, Name: "a has it all", OK: true}, Record{What: Check, Name: "accounted", OK: true}),
		},
		{
			name: "an alarm over page cache", scenario: "3", want: 75,
			records: ended(warned(8, "a", "warn"), Record{What: Check, Name: "a has it all", OK: true}, Record{What: Check, Name: "accounted", OK: true}),
		},
		{
			name: "a check that fails once has failed", scenario: "3", want: 65, missed: 1,
			records: ended(Record{What: Check, Name: "a has it all", OK: true}, Record{What: Check, Name: "accounted"}, Record{What: Check, Name: "accounted", OK: true}),
		},
		{
			name: "ssh is silent", scenario: "1", kill: kill, why: "ssh did not answer 1 of 20 times",
			records: ended(warned(8, "a", "warn"), warned(14, "a", "critical"), acted(16, "freeze", "a"), Record{What: Probe}),
		},
		{
			name: "a gap", scenario: "1", kill: kill, why: "stood still for 6.0 s",
			records: ended(warned(8, "a", "warn"), warned(14, "a", "critical"), acted(16, "freeze", "a"), Record{What: Gap, Seconds: 6}),
		},
		{
			name: "the kernel kills somebody else", scenario: "1", kill: kill, why: "killed sshd of no session",
			records: ended(warned(8, "a", "warn"), warned(14, "a", "critical"), Record{What: Killed, Name: "sshd"}),
		},
		{
			name: "the host is gone", scenario: "1", kill: kill, why: "did not come to the end",
			records: begun(warned(8, "a", "warn"), warned(14, "a", "critical"), acted(16, "freeze", "a")),
		},
		{
			name: "too slow a machine", scenario: "1", kill: kill, invalid: "60 % of its rate",
			records: ended(Record{What: Rate, Ratio: .9}, Record{What: Rate, Ratio: .6}),
		},
		{name: "nothing to compare with", scenario: "1", invalid: "without a guard", records: ended()},
		{name: "no run", scenario: "3", invalid: "did not begin", records: nil},
		{name: "not all was read", scenario: "3", invalid: "not a has it all", records: ended(Record{What: Check, Name: "accounted", OK: true})},
		{name: "a run that says so", scenario: "3", invalid: "no swap", records: ended(Record{What: Fail, Text: "no swap"})},
		{
			name: "in time after it thrashes", scenario: "8b", want: 100,
			records: ended(Record{At: 20, What: Thrash}, warned(29, plan.HostName, "warn")),
		},
		{
			name: "and too late", scenario: "8b", want: 65,
			records: ended(Record{At: 20, What: Thrash}, warned(31, plan.HostName, "warn")),
		},
		{
			name: "closed where it has to be", scenario: "11b", kill: 30, want: 100,
			records: ended(warned(15, plan.HostName, "warn"), acted(25, "close", "hog"), Record{At: 26, What: Died, Session: "hog"}),
		},
		{
			name: "the oldest is touched", scenario: "4", kill: 40, want: 75, missed: 1,
			records: ended(Record{At: 20, What: Warned, Name: plan.HostName, Level: "warn", Change: "raised", N: 3}, acted(35, "freeze", "s19"), acted(36, "freeze", "s00")),
		},
	} {
		s := scenario(t, c.scenario)
		f := Read(s, c.records)
		v := Judge(s, &f, c.kill, 45)
		if v.Points != c.want || !strings.Contains(v.Invalid, c.invalid) || !strings.Contains(v.Why, c.why) ||
			(c.invalid == "") != (v.Invalid == "") || (c.why == "") != (v.Why == "") {
			t.Errorf("%s: %+v; want %v points, invalid %q, why %q", c.name, v, c.want, c.invalid, c.why)
		}
		if c.invalid == "" && len(v.Missed) != c.missed {
			t.Errorf("%s: missed %q, want %d", c.name, v.Missed, c.missed)
		}
	}
}

func TestBaseline(t *testing.T) {
	died := Record{At: 17, What: Died, Session: "a"}
	for _, c := range []struct {
		scenario string
		records  []Record
		kill     float64
		invalid  string
	}{
		{"1", ended(Record{At: 18, What: Killed, Session: "a"}, died), 17, ""},
		{"1", ended(), 0, "nobody was killed"},
		{"1", begun(), 0, "lost before"},
		{"1", begun(died), 17, ""}, // what it was lost after is known
		{"1", ended(died, Record{What: Rate, Ratio: .5}), 0, "50 % of its rate"},
		{"1", ended(died, Record{What: Fail, Text: "open: no"}), 0, "open: no"},
		{"5", ended(), 0, ""},
		{"3", ended(), 0, "not a has it all"},
		{"3", nil, 0, "did not begin"},
	} {
		s := scenario(t, c.scenario)
		f := Read(s, c.records)
		kill, invalid := Baseline(s, &f)
		if kill != c.kill || (invalid == "") != (c.invalid == "") || !strings.Contains(invalid, c.invalid) {
			t.Errorf("%s %+v: %v, %q; want %v, %q", c.scenario, c.records, kill, invalid, c.kill, c.invalid)
		}
	}
}

func TestParse(t *testing.T) {
	r := Record{At: 1.5, What: Progress, MiB: map[string]int{"a": 40}}
	got, bad := Parse("talk\n" + r.Line() + "\r\n" + Mark + "{\"what\":\n" + Mark + "{}\n" + (&Record{What: End}).Line())
	if bad != 2 || len(got) != 2 || got[0].MiB["a"] != 40 || got[0].At != 1.5 || got[1].What != End {
		t.Errorf("%+v, %d bad", got, bad)
	}
}

func TestMedian(t *testing.T) {
	for _, c := range []struct{ all, want []float64 }{
		{nil, []float64{0, 0}}, {[]float64{5}, []float64{5, 5}}, {[]float64{9, 1, 5}, []float64{5, 1}}, {[]float64{4, 2}, []float64{2, 2}},
	} {
		kept := slices.Clone(c.all)
		if m, w := Median(c.all); m != c.want[0] || w != c.want[1] || !slices.Equal(c.all, kept) {
			t.Errorf("Median(%v) = %v, %v", kept, m, w)
		}
	}
}
