package memlimit

import "testing"

func TestWhoseLimit(t *testing.T) {
	task, work := Place{Kind: KindTask, Name: "work/2", Session: "w"}, place("work")
	slice, host := Place{Kind: KindAncestor, Name: "sessionbox.slice"}, Place{Kind: KindHost, Name: "this host"}
	ev := func(oom, kill uint64) Events { return Events{OOM: oom, OOMKill: kill} }
	at := func(p Place, all, local Events) Counts {
		return Counts{Place: p, After: all, LocalAfter: local, HasLocal: true}
	}
	nolocal := func(p Place, all Events) Counts { return Counts{Place: p, After: all} }
	for name, c := range map[string]struct {
		path []Counts
		want string // "" for nobody
		sure bool
	}{
		"nothing was killed":           {[]Counts{at(task, ev(0, 0), ev(0, 0)), at(work, ev(3, 2), ev(3, 2)), {Place: host}}, "", false},
		"the task's own":               {[]Counts{at(task, ev(1, 1), ev(1, 1)), at(work, ev(1, 1), ev(0, 0)), at(slice, ev(1, 1), ev(0, 0)), {Place: host}}, "work/2", true},
		"the session's":                {[]Counts{at(task, ev(0, 1), ev(0, 1)), at(work, ev(1, 1), ev(1, 0)), at(slice, ev(1, 1), ev(0, 0)), {Place: host}}, "work", true},
		"an ancestor's":                {[]Counts{at(task, ev(0, 1), ev(0, 1)), at(work, ev(0, 1), ev(0, 0)), at(slice, ev(1, 1), ev(1, 0)), {Place: host}}, "sessionbox.slice", true},
		"the host":                     {[]Counts{at(task, ev(0, 1), ev(0, 1)), at(work, ev(0, 1), ev(0, 0)), at(slice, ev(0, 1), ev(0, 0)), {Place: host}}, "this host", true},
		"something around a namespace": {[]Counts{at(task, ev(0, 1), ev(0, 1)), at(work, ev(0, 1), ev(0, 0))}, "this host", false},
		"without local counts: ours":   {[]Counts{nolocal(task, ev(0, 1)), nolocal(work, ev(1, 1)), nolocal(slice, ev(1, 1)), {Place: host}}, "work", true},
		"without local counts: around": {[]Counts{nolocal(task, ev(0, 1)), nolocal(work, ev(0, 1)), nolocal(slice, ev(1, 1)), {Place: host}}, "sessionbox.slice", true},
	} {
		k, ok := WhoseLimit(c.path)
		if ok != (c.want != "") || ok && (k.Limit.Name != c.want || k.Sure != c.sure || k.Processes != 1) {
			t.Errorf("%s: %v %+v, want %q, sure %v", name, ok, k, c.want, c.sure)
		}
	}
	// Only what happened between the two readings counts.
	old := Counts{Place: work, Before: ev(5, 5), After: ev(5, 5), LocalBefore: ev(5, 5), LocalAfter: ev(5, 5), HasLocal: true}
	if k, ok := WhoseLimit([]Counts{old}); ok {
		t.Errorf("%+v", k)
	}
	if _, ok := WhoseLimit(nil); ok {
		t.Error("nowhere")
	}
	hidden := host
	hidden.Hidden = true
	k, _ := WhoseLimit([]Counts{{Place: task, After: Events{OOMKill: 3, OOMGroupKill: 1}, HasLocal: true}, {Place: hidden}})
	if want := "3 processes were killed because this host had no memory left, or for a limit around it that cannot be seen"; k.String() != want || !k.Group {
		t.Errorf("%q, want %q", k, want)
	}
	k = Kill{Processes: 1, Limit: slice, Sure: true}
	if want := "a process was killed for the memory limit of sessionbox.slice"; k.String() != want {
		t.Errorf("%q, want %q", k, want)
	}
}

func TestKillString(t *testing.T) {
	work := place("work")
	v := func(names ...string) (all []Victim) {
		for i, n := range names {
			all = append(all, Victim{PID: 10 + i, Comm: n})
		}
		return all
	}
	for _, c := range []struct {
		k    Kill
		want string
	}{
		{Kill{Processes: 1, Victims: v("a")}, "a (10) was killed"},
		{Kill{Processes: 2, Victims: v("a", "b")}, "a (10) and b (11) were killed"},
		{Kill{Processes: 3, Victims: v("a")}, "a (10) and 2 more were killed"},
		{Kill{Processes: 5, Victims: v("a", "b", "c", "d")}, "b (11), c (12), d (13) and 2 more were killed"},
		{Kill{Processes: 1, Victims: []Victim{{Comm: "a"}}}, "a was killed"},
	} {
		c.k.Limit = work
		if got, want := c.k.String(), c.want+" for the memory limit of work"; got != want {
			t.Errorf("%q, want %q", got, want)
		}
	}
	k := &Kill{Victims: v("a")}
	if !k.Of(10) || k.Of(11) || k.Of(0) || (*Kill)(nil).Of(10) {
		t.Error("who is a victim")
	}
}
