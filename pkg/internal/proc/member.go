package proc

import (
	"fmt"
	"strings"
)

// Member is a process in a box.
type Member struct {
	PID int
	// Leaf is where in the box: the task's leaf, or a path that starts with it.
	Leaf string
}

// Survivor is a process that outlived SIGKILL until the deadline.
type Survivor struct {
	PID   int    `json:"pid"`
	Start uint64 `json:"start"` // clock ticks since boot
	Comm  string `json:"comm"`
	State string `json:"state"`           // one letter, D is uninterruptible
	Wchan string `json:"wchan,omitempty"` // kernel function it sleeps in
	UID   int    `json:"uid"`             // -1 if it cannot be told
}

func (s Survivor) String() string {
	return strings.TrimSpace(fmt.Sprintf("%d %s %s %s", s.PID, s.Comm, s.State, s.Wchan))
}

// SurvivorsError says that the deadline came before a box was empty.
type SurvivorsError struct {
	Path      string
	Survivors []Survivor
}

func (e *SurvivorsError) Error() string {
	who := make([]string, len(e.Survivors))
	for i, s := range e.Survivors {
		who[i] = s.String()
	}
	return fmt.Sprintf("%d processes survived in %s (%s)", len(who), e.Path, strings.Join(who, ", "))
}
