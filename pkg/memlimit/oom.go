package memlimit

import (
	"fmt"
	"maps"
	"slices"
	"strings"
)

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
	// Victims are those of them that are known, the newest last.
	Victims []Victim `json:"victims,omitempty"`
}

// Victim is a process that the kernel killed for want of memory.
type Victim struct {
	PID  int    `json:"pid,omitempty"` // 0: only its name is known
	Comm string `json:"comm"`
}

func (v Victim) String() string {
	if v.PID == 0 {
		return v.Comm
	}
	return fmt.Sprintf("%s (%d)", v.Comm, v.PID)
}

// Of says whether the process is one of the known victims.
func (k *Kill) Of(pid int) bool {
	return k != nil && pid > 0 && slices.ContainsFunc(k.Victims, func(v Victim) bool { return v.PID == pid })
}

// namedVictims is how many victims a sentence names.
const namedVictims = 3

// who names the victims, or counts them.
func (k Kill) who() string {
	if len(k.Victims) == 0 {
		if k.Processes > 1 {
			return fmt.Sprintf("%d processes were", k.Processes)
		}
		return "a process was"
	}
	shown := k.Victims[max(0, len(k.Victims)-namedVictims):]
	names := make([]string, len(shown))
	for i, v := range shown {
		names[i] = v.String()
	}
	all := max(k.Processes, uint64(len(k.Victims)))
	if more := all - uint64(len(shown)); more > 0 {
		names = append(names, fmt.Sprintf("%d more", more))
	}
	if last := len(names) - 1; last > 0 {
		names[last-1] += " and " + names[last]
		return strings.Join(names[:last], ", ") + " were"
	}
	return names[0] + " was"
}

func (k Kill) String() string {
	what := k.who()
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

// Mark is what was counted of want of memory before something began: what comes on top
// of it is its own. The zero Mark is nothing.
type Mark struct {
	// Kills is oom_kill of the session.
	Kills uint64 `json:"kills,omitempty"`
	// OOMs are how often memory ran out at the limit of each cgroup on the way to the
	// root, by its path; those without are left out.
	OOMs map[string]uint64 `json:"ooms,omitempty"`
}

// Over gives m, with what it does not have of the places taken from a mark that was made
// around it before.
func (m Mark) Over(around Mark) Mark {
	all := maps.Clone(around.OOMs)
	if all == nil {
		all = map[string]uint64{}
	}
	maps.Copy(all, m.OOMs)
	return Mark{Kills: m.Kills, OOMs: all}
}

// Zero says that nothing was counted.
func (m Mark) Zero() bool { return m.Kills == 0 && len(m.OOMs) == 0 }

// Tally is what is known of a cgroup only while it is there.
type Tally struct {
	// PeakBytes is the most it was charged, page cache included; nil before Linux 5.19
	// and without the memory controller.
	PeakBytes *uint64
	// OOM is what was killed in it for want of memory, nil when nothing was; it is known
	// only if Counted: without the memory controller nobody counts.
	OOM     *Kill
	Counted bool
	// Shared says that the count is that of the whole session, as the controller does
	// not reach down to the task.
	Shared bool
}
