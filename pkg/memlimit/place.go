package memlimit

// Kind says what a place is.
type Kind string

// The kinds of places, from the inside out.
const (
	KindTask     Kind = "task"     // one command's leaf of a session
	KindSession  Kind = "session"  // a session's box
	KindAncestor Kind = "ancestor" // a slice or cgroup that sessions lie in
	KindHost     Kind = "host"     // the machine
)

// Place is where memory is charged and can run out: each session, each cgroup
// around it, and the machine.
type Place struct {
	Kind Kind   `json:"kind"`
	Name string `json:"name"` // for people: "work", "sessionbox.slice", "this host"
	// Session is the id of the session that the place is or belongs to.
	Session string `json:"session,omitempty"`
	// Hidden says that there are cgroups around it that cannot be seen from here (a
	// cgroup namespace): the real limit may be lower.
	Hidden bool `json:"hidden,omitempty"`
}
