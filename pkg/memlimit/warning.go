package memlimit

import (
	"fmt"
	"math"
	"strconv"
	"strings"
)

// Warning is a Telling with all that people and machines want to know of it.
type Warning struct {
	Change Change `json:"change"`
	Level  Level  `json:"level"`
	Was    Level  `json:"was"`
	Cause  Cause  `json:"cause,omitempty"`
	// Who is what it is about: the session that was asked for, or the place itself.
	Who   Place `json:"who"`
	Limit Place `json:"limit"` // whose limit binds
	Tier  Tier  `json:"tier"`  // how it was measured

	HardBytes     uint64   `json:"hard_bytes"`
	SwapBytes     uint64   `json:"swap_bytes"`
	LimitBytes    *uint64  `json:"limit_bytes,omitempty"`
	HeadroomBytes *uint64  `json:"headroom_bytes,omitempty"`
	SwapRoomBytes uint64   `json:"swap_room_bytes"`
	Used          float64  `json:"used"` // share of the limit that is hard memory
	Slope         float64  `json:"slope_bytes_per_second"`
	FullSeconds   *float64 `json:"full_seconds,omitempty"`
	StallShare    float64  `json:"stall_share"`
	// HighBytes is the memory.high that holds it, absent if none does; ParkedSeconds for how
	// long it has gained next to nothing there.
	HighBytes     *uint64 `json:"high_bytes,omitempty"`
	ParkedSeconds float64 `json:"parked_seconds,omitempty"`

	Processes []Hog `json:"processes"` // the biggest
	Sessions  []Hog `json:"sessions"`  // the biggest, where several share the limit

	Next    string `json:"next,omitempty"`    // what will be done
	Prevent string `json:"prevent,omitempty"` // how to prevent it

	PeakBytes       uint64  `json:"peak_bytes"`
	DurationSeconds float64 `json:"duration_seconds"`
	LeftOut         int     `json:"left_out,omitempty"`
	// Skipped are the sessions whose --on-warn command was not run with this one.
	Skipped []Skipped `json:"commands_skipped,omitempty"`
}

// Skipped says of a session, by its id, why its command was not run.
type Skipped struct {
	Session string `json:"session"`
	Why     string `json:"why"`
}

// Hog is a session or a process and what it holds of a place.
type Hog struct {
	Name  string  `json:"name"` // of the session, or the process's comm
	ID    string  `json:"id,omitempty"`
	PID   int     `json:"pid,omitempty"`
	Start uint64  `json:"start,omitempty"`
	Task  int     `json:"task,omitempty"`
	Bytes uint64  `json:"bytes"`
	Slope float64 `json:"slope_bytes_per_second,omitempty"`
	// IdleSeconds is for how long a session was not used.
	IdleSeconds float64 `json:"idle_seconds,omitempty"`
}

// hogs is how many are named.
const hogs = 3

// NewWarning makes a warning of what a Crier said of the verdict on a place.
func NewWarning(t Telling, limit Place, v *Verdict) Warning {
	w := Warning{Change: t.Change, Level: t.Level, Was: t.Was, Cause: t.Cause, Who: limit, Limit: limit, Tier: v.Tier,
		HardBytes: v.Hard, SwapBytes: v.Swap, SwapRoomBytes: v.SwapRoom, Used: v.RAM, Slope: v.Slope, StallShare: v.Stall,
		Processes: []Hog{}, Sessions: []Hog{}, PeakBytes: max(t.Peak, v.Hard), LeftOut: t.LeftOut}
	if v.Max != Infinity {
		limit, room := v.Max, v.Headroom
		w.LimitBytes, w.HeadroomBytes = &limit, &room
	}
	if v.Parked > 0 {
		high := v.High
		w.HighBytes, w.ParkedSeconds = &high, v.Parked.Seconds()
	}
	if v.Full > 0 {
		s := v.Full.Seconds()
		w.FullSeconds = &s
	}
	if t.Began > 0 {
		w.DurationSeconds = (v.At - t.Began).Seconds()
	}
	return w
}

// Name adds the biggest of the processes and sessions that share the limit; both are
// sorted by what they hold.
func (w *Warning) Name(processes, sessions []Hog) {
	w.Processes = append(w.Processes, biggest(processes)...)
	w.Sessions = append(w.Sessions, biggest(sessions)...)
}

// String is one line for people:
//
//	session work: 87 % of 4.0 GiB (limit of sessionbox.slice), full in about 40 s,
//	vitest worker 4711 is 3.1 GiB of it; it will be frozen at 95 %: …
func (w *Warning) String() string {
	var b strings.Builder
	b.WriteString(who(w.Who))
	b.WriteString(": ")
	if w.Change == Cleared {
		fmt.Fprintf(&b, "memory is at ease again, %s in use; the peak was %s, it took %s", bytesText(w.HardBytes), bytesText(w.PeakBytes), about(w.DurationSeconds))
		return b.String()
	}
	if w.LimitBytes != nil {
		fmt.Fprintf(&b, "%d %% of %s", percent(w.Used), bytesText(*w.LimitBytes))
		switch {
		case w.Limit == w.Who && w.Limit.Kind == KindHost:
		case w.Limit == w.Who:
			b.WriteString(" (its own limit)")
		case w.Limit.Kind == KindHost:
			b.WriteString(" (all of " + w.Limit.Name + ")")
		default:
			b.WriteString(" (limit of " + w.Limit.Name + ")")
		}
	} else {
		b.WriteString(bytesText(w.HardBytes))
	}
	if w.SwapRoomBytes > 0 && w.HeadroomBytes != nil {
		fmt.Fprintf(&b, ", room for %s more with swap", bytesText(*w.HeadroomBytes))
	}
	switch {
	case w.HighBytes != nil:
		fmt.Fprintf(&b, ", stalled at its memory.high of %s for %s", bytesText(*w.HighBytes), about(w.ParkedSeconds))
		if w.StallShare > 0 {
			fmt.Fprintf(&b, ", everything in it waits for %d %% of the time", percent(w.StallShare))
		}
	case w.FullSeconds != nil:
		fmt.Fprintf(&b, ", full in about %s", about(*w.FullSeconds))
	case w.Cause == ByPressure:
		fmt.Fprintf(&b, ", %d %% of the time everything waits for memory", percent(w.StallShare))
	case w.Cause == ByEvents:
		b.WriteString(", the kernel is holding it back")
	}
	if len(w.Sessions) > 0 {
		b.WriteString(", most of it in ")
		b.WriteString(list(w.Sessions, func(h Hog) string {
			text := h.Name + " (" + bytesText(h.Bytes)
			if h.Slope >= 1<<20 {
				text += ", +" + bytesText(uint64(h.Slope)) + "/s"
			}
			if h.IdleSeconds >= 60 {
				text += ", idle for " + about(h.IdleSeconds)
			}
			return text + ")"
		}))
	}
	if len(w.Processes) > 0 {
		h := w.Processes[0]
		fmt.Fprintf(&b, ", %s %d", h.Name, h.PID)
		if h.Task > 0 {
			fmt.Fprintf(&b, " (task %d)", h.Task)
		}
		fmt.Fprintf(&b, " is %s of it", bytesText(h.Bytes))
		if more := w.Processes[1:]; len(more) > 0 {
			b.WriteString(", then ")
			b.WriteString(list(more, func(h Hog) string { return fmt.Sprintf("%s %d (%s)", h.Name, h.PID, bytesText(h.Bytes)) }))
		}
	}
	if w.Tier == TierProcesses {
		b.WriteString("; added up from processes: nobody enforces the limit, and what they share may count twice")
	}
	if w.Limit.Hidden {
		b.WriteString("; the real limit may be lower (cgroup namespace)")
	}
	if w.Next != "" {
		b.WriteString("; " + w.Next)
	}
	if w.Prevent != "" {
		b.WriteString("; to prevent it, " + w.Prevent)
	}
	if w.LeftOut > 0 {
		fmt.Fprintf(&b, "; %d more warnings were left out", w.LeftOut)
	}
	return b.String()
}

// Env is the warning as the environment of an --on-warn command: who, how much, which
// limit, how long.
func (w *Warning) Env() []string {
	env := []string{
		"SESSIONBOX_WARN_LEVEL=" + w.Level.String(),
		"SESSIONBOX_WARN_CHANGE=" + string(w.Change),
		"SESSIONBOX_WARN_CAUSE=" + string(w.Cause),
		"SESSIONBOX_WARN_SESSION=" + w.Who.Session,
		"SESSIONBOX_WARN_NAME=" + w.Who.Name,
		"SESSIONBOX_WARN_LIMIT_OF=" + w.Limit.Name,
		"SESSIONBOX_WARN_HARD_BYTES=" + strconv.FormatUint(w.HardBytes, 10),
		"SESSIONBOX_WARN_TIER=" + string(w.Tier),
		"SESSIONBOX_WARN_TEXT=" + w.String(),
	}
	if w.LimitBytes != nil {
		env = append(env, "SESSIONBOX_WARN_LIMIT_BYTES="+strconv.FormatUint(*w.LimitBytes, 10))
	}
	if w.HighBytes != nil {
		env = append(env, "SESSIONBOX_WARN_HIGH_BYTES="+strconv.FormatUint(*w.HighBytes, 10))
	}
	if w.FullSeconds != nil {
		env = append(env, "SESSIONBOX_WARN_FULL_SECONDS="+strconv.FormatFloat(*w.FullSeconds, 'f', 1, 64))
	}
	return env
}

func who(p Place) string {
	if p.Kind == KindSession || p.Kind == KindTask {
		return string(p.Kind) + " " + p.Name
	}
	return p.Name
}

func list(hogs []Hog, text func(Hog) string) string {
	parts := make([]string, len(hogs))
	for i, h := range hogs {
		parts[i] = text(h)
	}
	if n := len(parts); n > 1 {
		return strings.Join(parts[:n-1], ", ") + " and " + parts[n-1]
	}
	return strings.Join(parts, "")
}

func biggest(all []Hog) []Hog { return all[:min(len(all), hogs)] }

func percent(share float64) int { return int(math.Round(100 * min(share, 9.99))) }

// about writes a time with the precision that a forecast has.
func about(seconds float64) string {
	switch {
	case seconds < 1:
		return "1 s"
	case seconds < 20:
		return fmt.Sprintf("%.0f s", seconds)
	case seconds < 90:
		return fmt.Sprintf("%.0f s", math.Round(seconds/5)*5)
	case seconds < 90*60:
		return fmt.Sprintf("%.0f min", math.Round(seconds/60))
	}
	return fmt.Sprintf("%.0f h", math.Round(seconds/3600))
}

// bytesText writes an amount in prose: "3.1 GiB".
func bytesText(n uint64) string {
	if n < 1<<20 {
		return fmt.Sprintf("%d KiB", (n+1023)>>10)
	}
	if n < 1<<30 {
		return fmt.Sprintf("%d MiB", n>>20)
	}
	return fmt.Sprintf("%.1f GiB", float64(n)/(1<<30))
}
