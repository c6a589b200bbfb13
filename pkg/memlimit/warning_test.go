package memlimit

import (
	"encoding/json"
	"slices"
	"strings"
	"testing"
	"time"
)

func TestWarningText(t *testing.T) {
	slice := Place{Kind: KindAncestor, Name: "sessionbox.slice"}
	work := Place{Kind: KindSession, Name: "work", Session: "abcdefghij"}
	host := Place{Kind: KindHost, Name: "this host"}
	v := Verdict{At: time.Hour, Tier: TierCgroup, Level: Warn, Hard: 3563 * mib, Max: 4 * gib, Headroom: 533 * mib, RAM: .87, Used: .87, Slope: 13 * mib, Growing: true, Full: 41 * time.Second}
	for name, c := range map[string]struct {
		make func() Warning
		want string
	}{
		"a session under a slice": {func() Warning {
			w := NewWarning(Telling{Change: Raised, Level: Warn, Cause: BySlope, Began: time.Hour}, slice, &v)
			w.Who = work
			w.Name([]Hog{{Name: "vitest", PID: 4711, Task: 2, Bytes: 3174 * mib}, {Name: "node", PID: 4712, Bytes: 200 * mib}}, nil)
			w.Next, w.Prevent = "session work will be frozen in about 35 s", "end what it does not need"
			return w
		}, "session work: 87 % of 4.0 GiB (limit of sessionbox.slice), full in about 40 s, vitest 4711 (task 2) is 3.1 GiB of it, then node 4712 (200 MiB); session work will be frozen in about 35 s; to prevent it, end what it does not need"},
		"the slice itself": {func() Warning {
			w := NewWarning(Telling{Change: Raised, Level: Warn, Cause: BySize}, slice, &v)
			w.Name(nil, []Hog{{Name: "work", Bytes: 3 * gib, Slope: 5 * mib}, {Name: "old", Bytes: 300 * mib, IdleSeconds: 720}, {Name: "c", Bytes: 1}, {Name: "d", Bytes: 1}})
			return w
		}, "sessionbox.slice: 87 % of 4.0 GiB (its own limit), full in about 40 s, most of it in work (3.0 GiB, +5 MiB/s), old (300 MiB, idle for 12 min) and c (1 KiB)"},
		"its own, by process sums": {func() Warning {
			x := v
			x.Tier, x.Full = TierProcesses, 0
			w := NewWarning(Telling{Change: Raised, Level: Warn, Cause: BySize, LeftOut: 3}, work, &x)
			return w
		}, "session work: 87 % of 4.0 GiB (its own limit); added up from processes: nobody enforces the limit, and what they share may count twice; 3 more warnings were left out"},
		"the host, thrashing, in a container": {func() Warning {
			x := v
			x.Full, x.Stall, x.SwapRoom = 0, .42, 100*mib
			w := NewWarning(Telling{Change: Raised, Level: Emergency, Cause: ByPressure}, Place{Kind: KindHost, Name: "this host", Hidden: true}, &x)
			return w
		}, "this host: 87 % of 4.0 GiB, room for 533 MiB more with swap, 42 % of the time everything waits for memory; the real limit may be lower (cgroup namespace)"},
		"a session and the host": {func() Warning {
			w := NewWarning(Telling{Change: Raised, Level: Critical, Cause: BySlope}, host, &v)
			w.Who = work
			return w
		}, "session work: 87 % of 4.0 GiB (all of this host), full in about 40 s"},
		"over": {func() Warning {
			x := v
			x.Level, x.Hard = OK, 300*mib
			return NewWarning(Telling{Change: Cleared, Was: Critical, Began: time.Hour - 4*time.Minute, Peak: 3900 * mib}, work, &x)
		}, "session work: memory is at ease again, 300 MiB in use; the peak was 3.8 GiB, it took 4 min"},
	} {
		w := c.make()
		if got := w.String(); got != c.want {
			t.Errorf("%s:\n got %s\nwant %s", name, got, c.want)
		}
		if env := w.Env(); !slices.Contains(env, "SESSIONBOX_WARN_LIMIT_OF="+w.Limit.Name) || !slices.Contains(env, "SESSIONBOX_WARN_TEXT="+c.want) {
			t.Errorf("%s: %q", name, env)
		}
	}
}

func TestWarningJSON(t *testing.T) {
	v := Verdict{At: time.Hour, Tier: TierCgroup, Hard: 5, Max: Infinity, Headroom: Infinity}
	data, err := json.Marshal(NewWarning(Telling{Change: Raised, Level: Warn, Was: OK, Cause: BySize}, place("a"), &v))
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{`"level":"warn"`, `"was":"ok"`, `"processes":[]`, `"sessions":[]`, `"hard_bytes":5`, `"tier":"cgroup"`} {
		if !strings.Contains(string(data), want) {
			t.Errorf("%s has no %s", data, want)
		}
	}
	if strings.Contains(string(data), "limit_bytes") {
		t.Errorf("%s has a limit, and there is none", data)
	}
	var l Level
	if err := json.Unmarshal([]byte(`"critical"`), &l); err != nil || l != Critical {
		t.Errorf("%v, %v", l, err)
	}
	if err := json.Unmarshal([]byte(`"bad"`), &l); err == nil || Level(9).String() != "level(9)" {
		t.Error(err)
	}
}

func TestAbout(t *testing.T) {
	for s, want := range map[float64]string{0: "1 s", 7.4: "7 s", 41: "40 s", 43: "45 s", 100: "2 min", 3500: "58 min", 7200: "2 h"} {
		if got := about(s); got != want {
			t.Errorf("%v: %q, want %q", s, got, want)
		}
	}
}
