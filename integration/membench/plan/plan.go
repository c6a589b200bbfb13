// Package plan says what the memory scenarios are, facts/memory.md §4: the machine, the
// sessions and what they do with its memory, and what is expected of who guards it. It is
// plain data: the driver boots guests by it, the player in the guest plays it, and score
// judges by it. pkg/memlimit simulates the same scenarios under the same numbers.
package plan

import (
	"slices"
	"time"
)

// Scenario is one of them.
type Scenario struct {
	Name  string
	Title string
	Host  Host
	// Setup and Teardown are lines for the shell, run by root around each run.
	Setup, Teardown []string
	// Config is sessionbox's config file.
	Config string
	// Steps of the ladder are allowed to the guard; "" is to warn.
	Steps    string
	Sessions []Session
	Outside  []Actor // what goes on outside of any session
	Deeds    []Deed
	Length   time.Duration // from go on
	// Peers says that guards of the whole host can do something here.
	Peers  bool
	Expect Expect
}

// Host is the machine. Scenarios with the same one are played in one guest.
type Host struct {
	MemoryMiB, SwapMiB int
	Append             string // of the kernel's command line
	Agent              bool   // sessionbox runs as an unprivileged user
}

// Session is opened before go, in that order.
type Session struct {
	Name   string
	Flags  []string // of open
	Idle   bool     // its commands are in the background: nobody waits for them
	Actors []Actor
}

// Kind is what a process does.
type Kind string

// The kinds of actors.
const (
	Grow    Kind = "grow"    // takes anonymous memory, and keeps it
	Read    Kind = "read"    // reads DataFile over and over: page cache
	Tmpfs   Kind = "tmpfs"   // writes a file into memory
	Cycle   Kind = "cycle"   // takes memory and writes to all of it over and over
	SwapOut Kind = "swapout" // takes memory and has it swapped out
	Leave   Kind = "leave"   // like Grow in a session of its own, with a parent that has left
)

// DataFile is what Read reads, made by MakeData.
const DataFile = "/var/tmp/membench.data"

// MakeData is the line of Setup that makes DataFile, 600 MiB, and forgets it again.
const MakeData = "[ -e " + DataFile + " ] || head -c 600M /dev/zero >" + DataFile + "; sync; echo 1 >/proc/sys/vm/drop_caches"

// Actor is one or several processes that do the same.
type Actor struct {
	Do    Kind
	Count int     // processes; 0 is 1
	Rate  float64 // MiB/s of each; 0 is as fast as it can
	// First is taken before go, UpTo is where it stops; both of each process.
	First, UpTo int
	After       time.Duration // after go
	Times       int           // of Read
	// Steady is how much a process must have, in MiB, for its rate to be looked at.
	Steady int
}

// Deed is something that is done with sessionbox in the course of a run.
type Deed struct {
	At   time.Duration // after go; or
	On   string        // after the guard has done this: freeze, hold, …
	Wait time.Duration // after that
	Args []string      // of sessionbox; or
	Do   string        // one of the player's own: measure, opens
	Only string        // with this guard alone; "" is with all
}

// Expect is what a good guard makes of it.
type Expect struct {
	// OOM says that without a guard memory runs out: a run without one in which it did
	// not is none.
	OOM bool
	// Blame begins the name of the place that is to be warned of. Warnings of others are
	// false ones, as all are if it is "".
	Blame string
	// Lead and Critical are how long before the kill these levels are to be told.
	Lead, Critical time.Duration
	// Within is the longest time to the warning from when the host thrashes on.
	Within time.Duration
	// Victims are the sessions that something is done to, exactly; with Any it is some of
	// them.
	Victims []string
	Any     bool
	// First is the one that it is done to first, Never one that it is never done to.
	First, Never string
	// Named is how many sessions the warning of the host names.
	Named int
	// Lives says that with the guard nobody has to be killed, of whatever sort.
	Lives bool
	// Closes says that work has to be lost.
	Closes bool
	// Valid are checks of the player without which a run is none, Checks those that must
	// hold in one.
	Valid  []string
	Checks []string
}

// HostName is what sessionbox calls the machine.
const HostName = "this host"

// Sum is how many processes a session starts.
func (s *Session) Sum() (n int) {
	for i := range s.Actors {
		n += max(1, s.Actors[i].Count)
	}
	return n
}

// Session gives the session of that name, nil for none.
func (s *Scenario) Session(name string) *Session {
	i := slices.IndexFunc(s.Sessions, func(x Session) bool { return x.Name == name })
	if i < 0 {
		return nil
	}
	return &s.Sessions[i]
}

// Find gives the scenario of that name.
func Find(name string) (Scenario, bool) {
	all := All()
	i := slices.IndexFunc(all, func(s Scenario) bool { return s.Name == name })
	if i < 0 {
		return Scenario{}, false
	}
	return all[i], true
}
