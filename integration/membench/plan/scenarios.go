package plan

import (
	"fmt"
	"time"
)

// All gives every scenario, in the order of facts/memory.md §4; 11 is the story of the
// twelve processes.
func All() []Scenario {
	bystander := Session{Name: "bystander", Actors: []Actor{{Do: Grow, First: 30, UpTo: 30}}}
	return []Scenario{
		{
			Name: "1", Title: "a leak of 20 MB/s under 400M, no swap",
			Host: Host{MemoryMiB: 1024}, Steps: "freeze", Length: 45 * time.Second,
			Sessions: []Session{
				{Name: "a", Flags: []string{"--memory-max", "400M"}, Actors: []Actor{{Do: Grow, Rate: 20, UpTo: 900, Steady: 200}}},
				bystander,
			},
			Expect: Expect{OOM: true, Blame: "a", Lead: 8 * time.Second, Critical: 3 * time.Second, Victims: []string{"a"}, Lives: true},
		},
		{
			Name: "2", Title: "a burst of 4 processes to 900M under 400M, as fast as they can, with a brake",
			Host: Host{MemoryMiB: 1024}, Steps: "brake,freeze", Length: 40 * time.Second,
			Sessions: []Session{
				{Name: "a", Flags: []string{"--memory-max", "400M"}, Actors: []Actor{{Do: Grow, Count: 4, UpTo: 225, After: 5 * time.Second}}},
				bystander,
			},
			Expect: Expect{OOM: true, Blame: "a", Lead: time.Millisecond, Victims: []string{"a"}, Lives: true},
		},
		reading("3", "600 MB of files are read four times, then 60 MB of tmpfs", "y"),
		reading("3l", "the same with the classic LRU", "n"),
		crowd(),
		{
			Name: "5", Title: "the first command leaves, its 10 children of 60 MB stay",
			Host: Host{MemoryMiB: 1536}, Length: 40 * time.Second,
			Sessions: []Session{
				{Name: "a", Flags: []string{"--memory-warn", "on"}, Actors: []Actor{{Do: Leave, Count: 10, Rate: 5, UpTo: 60}}},
				bystander,
			},
			Deeds:  []Deed{{At: 25 * time.Second, Do: "measure"}, {At: 30 * time.Second, Args: []string{"close", "a"}}},
			Expect: Expect{Checks: []string{"accounted", "gone", "bystander lives"}},
		},
		{
			Name: "6", Title: "three idle sessions of 250M and one that needs 600M, 1 GB of swap",
			Host: Host{MemoryMiB: 1024, SwapMiB: 1024}, Steps: "hibernate", Length: 2 * time.Minute, Peers: true,
			Config: "[memory]\nidle_after = \"20s\"\n",
			Sessions: []Session{
				{Name: "idle0", Idle: true, Actors: []Actor{{Do: Grow, First: 250, UpTo: 250}}},
				{Name: "idle1", Idle: true, Actors: []Actor{{Do: Grow, First: 250, UpTo: 250}}},
				{Name: "idle2", Idle: true, Actors: []Actor{{Do: Grow, First: 250, UpTo: 250}}},
				{Name: "active", Actors: []Actor{{Do: Grow, Rate: 10, UpTo: 600, After: 20 * time.Second}}},
			},
			Expect: Expect{Blame: HostName, Victims: []string{"idle0", "idle1", "idle2"}, Any: true, Never: "active", Lives: true, Checks: []string{"active has it all", "active ran on"}},
		},
		{
			Name: "7", Title: "anonymous memory parked above memory.high, no swap",
			Host: Host{MemoryMiB: 1536}, Steps: "brake", Length: 70 * time.Second,
			Sessions: []Session{
				{Name: "a", Flags: []string{"--memory-max", "1G", "--memory-high", "200M"}, Actors: []Actor{{Do: Grow, Rate: 50, UpTo: 280}}},
				bystander,
			},
			Expect: Expect{Blame: "a", Victims: []string{"a"}, Lives: true, Checks: []string{"a has it all"}},
		},
		{
			Name: "8a", Title: "swap full of cold pages, 40 % available",
			Host: Host{MemoryMiB: 1024, SwapMiB: 512}, Steps: "freeze,close", Length: 90 * time.Second, Peers: true,
			Outside:  []Actor{{Do: SwapOut, First: 512, UpTo: 512}, {Do: Grow, First: 430, UpTo: 430}},
			Sessions: []Session{bystander},
		},
		{
			Name: "8b", Title: "more is written to over and over than there is",
			Host: Host{MemoryMiB: 1024, SwapMiB: 1024}, Length: 90 * time.Second, Peers: true,
			Sessions: []Session{{Name: "a", Actors: []Actor{{Do: Cycle, Rate: 100, UpTo: 1100}}}, bystander},
			Expect:   Expect{Blame: HostName, Within: 10 * time.Second},
		},
		{
			Name: "9", Title: "a slice of 300M around, a sibling of 150M",
			Host: Host{MemoryMiB: 1024}, Steps: "freeze", Length: 60 * time.Second,
			Config: "[slice]\nmemory_max = \"300M\"\n",
			Sessions: []Session{
				{Name: "sibling", Actors: []Actor{{Do: Grow, First: 150, UpTo: 150}}},
				{Name: "a", Actors: []Actor{{Do: Grow, Rate: 5, UpTo: 300, Steady: 50}}},
			},
			Expect: Expect{OOM: true, Blame: "sessionbox.slice", Lead: 8 * time.Second, Victims: []string{"a"}, Lives: true},
		},
		quietThenLeak("10p", "without pressure: psi=0", Host{MemoryMiB: 1024, Append: "psi=0"}),
		quietThenLeak("10v", "memory on cgroup v1", Host{MemoryMiB: 1024, Append: "systemd.unified_cgroup_hierarchy=0 SYSTEMD_CGROUP_ENABLE_LEGACY_FORCE=1"}),
		quietThenLeak("10u", "an unprivileged user, after old stalls", Host{MemoryMiB: 1024, Agent: true}),
		jetsam("11", "freeze"),
		jetsam("11b", "close"),
	}
}

// lruFile is where a kernel has it that can do both; others go on with the one they have.
const lruFile = "/sys/kernel/mm/lru_gen/enabled"

func reading(name, title, lru string) Scenario {
	return Scenario{
		Name: name, Title: title,
		Host: Host{MemoryMiB: 1024}, Steps: "freeze,close", Length: 160 * time.Second, Peers: true,
		Setup:    []string{MakeData, "cat " + lruFile + " >/run/lru.was 2>/dev/null || :", "{ echo " + lru + " >" + lruFile + "; } 2>/dev/null || :"},
		Teardown: []string{"{ cat /run/lru.was >" + lruFile + "; } 2>/dev/null || :"},
		Sessions: []Session{{Name: "a", Flags: []string{"--memory-max", "400M"}, Actors: []Actor{
			{Do: Grow, First: 40, UpTo: 40}, {Do: Read, Times: 4}, {Do: Tmpfs, UpTo: 60, After: 120 * time.Second},
		}}},
		Deeds:  []Deed{{At: 110 * time.Second, Do: "measure"}, {At: 140 * time.Second, Do: "measure"}},
		Expect: Expect{Valid: []string{"a has it all"}, Checks: []string{"accounted"}},
	}
}

func crowd() Scenario {
	s := Scenario{
		Name: "4", Title: "twenty sessions of +1 MB/s each, no ceilings, no swap",
		Host: Host{MemoryMiB: 1024}, Steps: "hold,freeze", Length: 2 * time.Minute, Peers: true,
		Deeds:  []Deed{{On: "hold", Do: "opens"}},
		Expect: Expect{OOM: true, Blame: HostName, Lead: 15 * time.Second, Any: true, Never: "s00", First: "s19", Named: 3, Lives: true, Checks: []string{"held"}},
	}
	for i := range 20 {
		x := Session{Name: fmt.Sprintf("s%02d", i), Idle: i >= 10, Flags: []string{"--memory-warn", "on"}, Actors: []Actor{{Do: Grow, Rate: 1, First: 4, UpTo: 120, Steady: 10}}}
		s.Sessions = append(s.Sessions, x)
		s.Expect.Victims = append(s.Expect.Victims, x.Name)
	}
	return s
}

func quietThenLeak(name, title string, host Host) Scenario {
	return Scenario{
		Name: name, Title: title, Host: host, Steps: "freeze", Length: 75 * time.Second,
		// Stalls from before it looks: they are no news.
		Setup: []string{MakeData, "for i in 1 2; do cat " + DataFile + " >/dev/null; done"},
		Sessions: []Session{
			{Name: "a", Flags: []string{"--memory-max", "400M"}, Actors: []Actor{{Do: Grow, First: 40, UpTo: 900, Rate: 20, After: 30 * time.Second, Steady: 200}, {Do: Read, Times: 1}}},
			{Name: "bystander", Actors: []Actor{{Do: Grow, First: 30, UpTo: 30}}},
		},
		Expect: Expect{OOM: true, Blame: "a", Lead: 5 * time.Second, Victims: []string{"a"}, Lives: true},
	}
}

func jetsam(name, step string) Scenario {
	s := Scenario{
		Name: name, Title: "twelve processes grow to 300 MB each in 2 GB: " + step,
		Host: Host{MemoryMiB: 2048}, Steps: step, Length: 90 * time.Second, Peers: step == "freeze",
		Expect: Expect{OOM: true, Blame: HostName, Lead: 10 * time.Second, Victims: []string{"hog"}, Lives: true, Closes: step == "close"},
	}
	for i := range 4 {
		s.Sessions = append(s.Sessions, Session{Name: fmt.Sprintf("s%d", i), Flags: []string{"--memory-warn", "on"}, Actors: []Actor{{Do: Grow, First: 10, Rate: 8, UpTo: 120}}})
	}
	s.Sessions = append(s.Sessions, Session{Name: "hog", Flags: []string{"--memory-warn", "on"}, Actors: []Actor{{Do: Grow, Count: 12, Rate: 5, UpTo: 300, Steady: 60}}})
	if step == "freeze" {
		s.Deeds = []Deed{{On: "freeze", Wait: 10 * time.Second, Args: []string{"close", "--now", "s0", "s1", "s2", "s3"}, Only: "sessionbox"}}
		s.Expect.Checks = []string{"thawed"}
	}
	return s
}
