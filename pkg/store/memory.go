package store

import (
	"fmt"
	"time"
)

// MemoryPolicy is what a session's record says of how its memory is watched. Flags
// and config file were put together when it was opened, so that whoever watches
// needs neither.
type MemoryPolicy struct {
	// Warn is "on" or "off" when it was said; "": warned is of what has a ceiling, or
	// anything of this.
	Warn string `json:"warn,omitempty"`
	// OnWarn is a command line for the shell that is run with each warning.
	OnWarn string `json:"on_warn,omitempty"`
	// Notify is where else people are told: "desktop" or "".
	Notify string `json:"notify,omitempty"`
	// Steps are those of the ladder that may be taken with it, as memlimit.ParseSteps
	// reads them.
	Steps string `json:"steps,omitempty"`
	// Protected sessions are never acted on.
	Protected bool `json:"protected,omitempty"`

	// Frozen is when a guard froze it for want of memory, a reading of the monotonic
	// clock; 0: it did not, or it was thawed since. Thawed is when somebody thawed it
	// by hand after that.
	Frozen time.Duration `json:"frozen_clock_seconds,omitempty"`
	Thawed time.Duration `json:"thawed_clock_seconds,omitempty"`
	// Brake is what a guard has set memory.high to, or is about to; 0: it is as Limits
	// says.
	Brake uint64 `json:"brake_bytes,omitempty"`
	// Lifted says that a guard has lifted the memory.high that Limits asks for, or is about
	// to; nil: it is in force.
	Lifted *Lifted `json:"high_lifted,omitempty"`
}

// Lifted is a memory.high that is not in force, as the session stood at it.
type Lifted struct {
	High   uint64    `json:"high_bytes"` // as it was asked for
	By     ProcID    `json:"by"`         // the guard that did
	At     time.Time `json:"at"`
	Reason string    `json:"reason"`
}

func (p *MemoryPolicy) check() error {
	if p == nil {
		return nil
	}
	switch p.Warn {
	case "", "on", "off":
	default:
		return fmt.Errorf("memory warnings %q are neither on nor off", p.Warn)
	}
	if p.Frozen < 0 || p.Thawed < 0 {
		return fmt.Errorf("frozen for memory at %v, thawed at %v", p.Frozen, p.Thawed)
	}
	return nil
}
