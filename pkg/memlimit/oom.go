package memlimit

import "fmt"

// Counts are a cgroup's events before and after: memory.events counts what happened
// in it and below, memory.events.local (Linux 5.2) in it alone.
type Counts struct {
	Place
	Before, After           Events
	LocalBefore, LocalAfter Events
	HasLocal                bool
}

// Kill says what the kernel killed and for whose limit.
type Kill struct {
	Processes uint64 `json:"processes"` // how many were killed in the innermost place
	// Limit is the place whose limit was hit; the host when it was nobody's.
	Limit Place `json:"limit"`
	// Sure is false when a limit that cannot be seen from here may have been hit.
	Sure bool `json:"sure"`
	// Group says that the whole cgroup was killed for it (memory.oom.group).
	Group bool `json:"group,omitempty"`
}

func (k Kill) String() string {
	what := "a process was"
	if k.Processes > 1 {
		what = fmt.Sprintf("%d processes were", k.Processes)
	}
	why := "for the memory limit of " + k.Limit.Name
	if k.Limit.Kind == KindHost {
		why = "because " + k.Limit.Name + " had no memory left"
		if !k.Sure {
			why += ", or for a limit around it that cannot be seen"
		}
	}
	return what + " killed " + why
}

// WhoseLimit says for whose limit the kernel killed in the innermost of the places,
// which go from the inside out and end with the host if there is nobody around that
// cannot be seen. Not ok when it did not kill there.
//
// The kernel (mm/oom_kill.c, mm/memcontrol.c) counts oom_kill where the victim was,
// and oom where the limit was hit, each there and in all places around. When memory
// runs out altogether nobody's oom is counted.
func WhoseLimit(path []Counts) (k Kill, ok bool) {
	if len(path) == 0 {
		return Kill{}, false
	}
	inner := path[0].After.since(path[0].Before)
	if inner.OOMKill == 0 {
		return Kill{}, false
	}
	k = Kill{Processes: inner.OOMKill, Group: inner.OOMGroupKill > 0}
	var below uint64 // oom events in the place before, with all that is below it
	for _, c := range path {
		if c.Kind == KindHost {
			break
		}
		all := c.After.since(c.Before).OOM
		own := all - min(all, below)
		if c.HasLocal {
			own = c.LocalAfter.since(c.LocalBefore).OOM
		}
		if own > 0 {
			k.Limit, k.Sure = c.Place, true
			return k, true
		}
		below = all
	}
	k.Limit = Place{Kind: KindHost, Name: "this host"}
	if last := path[len(path)-1]; last.Kind == KindHost {
		k.Limit, k.Sure = last.Place, !last.Hidden
	}
	return k, true
}
