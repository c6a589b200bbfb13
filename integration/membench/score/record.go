// Package score judges the runs of memory scenarios by what the player in the guest told:
// the formula of facts/memory.md §4. It is pure.
package score

import (
	"encoding/json"
	"strings"
)

// Mark begins the lines of the player that are records; anything else is talk.
const Mark = "@membench "

// Record is one line of the player. What says what the other fields mean.
type Record struct {
	At   float64 `json:"at"` // seconds after go, by a clock that is never set
	What string  `json:"what"`

	Session string  `json:"session,omitempty"`
	Name    string  `json:"name,omitempty"` // of a place, a process or a check
	Level   string  `json:"level,omitempty"`
	Change  string  `json:"change,omitempty"`
	Do      string  `json:"do,omitempty"`
	PID     int     `json:"pid,omitempty"`
	N       int     `json:"n,omitempty"`
	OK      bool    `json:"ok,omitempty"`
	Seconds float64 `json:"seconds,omitempty"`
	Ratio   float64 `json:"ratio,omitempty"`
	Text    string  `json:"text,omitempty"`

	// Of progress.
	MiB       map[string]int `json:"mib,omitempty"` // what the processes of each session have taken
	Available int            `json:"available_mib,omitempty"`
	SwapFree  int            `json:"swap_free_mib,omitempty"`
	Full      float64        `json:"full,omitempty"`  // share of the last second that all stalled
	Guard     float64        `json:"guard,omitempty"` // processor time of the guard until now, in seconds
}

// What records say.
const (
	Ready    = "ready"    // Text: the machine
	Go       = "go"       // time begins
	Warned   = "warned"   // Name and Level of the place, Change; N sessions are named
	Acted    = "acted"    // Do, Session, Text; OK: it was done
	Killed   = "killed"   // the kernel killed PID for want of memory; Session or "" for none of ours, Name its program
	Died     = "died"     // a process of Session is no more that was to stay
	Rate     = "rate"     // the slowest of a session has grown at Ratio of its rate
	Reached  = "reached"  // Session has all it wants
	Thrash   = "thrash"   // from now on the host thrashes
	Probe    = "probe"    // ssh did not answer
	Gap      = "gap"      // the control loop stood still for Seconds
	Check    = "check"    // Name, OK
	Stalled  = "stalled"  // the longest that a process of Session stood still, Seconds
	Progress = "progress" // once a second
	Fail     = "fail"     // the run is none: Text
	End      = "end"      // Seconds: longest gap, N: probes of ssh
)

// Line is the record as the player writes it.
func (r *Record) Line() string {
	b, err := json.Marshal(r)
	if err != nil {
		return Mark + `{"what":"fail","text":"a record cannot be written"}`
	}
	return Mark + string(b)
}

// Parse takes the records out of the output of a run. Bad is how many lines bore the
// mark and were none.
func Parse(output string) (all []Record, bad int) {
	for line := range strings.Lines(output) {
		text, ok := strings.CutPrefix(strings.TrimSpace(line), strings.TrimSpace(Mark))
		if !ok {
			continue
		}
		var r Record
		if json.Unmarshal([]byte(text), &r) != nil || r.What == "" {
			bad++
			continue
		}
		all = append(all, r)
	}
	return all, bad
}
