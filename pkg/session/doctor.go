package session

// CheckStatus is the outcome of a check.
type CheckStatus string

// The outcomes.
const (
	CheckOK      CheckStatus = "ok"
	CheckMissing CheckStatus = "missing" // Fix says how to get it, where that is known
	CheckUnknown CheckStatus = "unknown" // could not be told
)

// Check is one thing that sessionbox can use, and whether it is here.
type Check struct {
	Name   string      `json:"name"`
	Status CheckStatus `json:"status"`
	Text   string      `json:"text"`
	Fix    string      `json:"fix,omitempty"`
	// Needed says that without it no box can be made.
	Needed bool `json:"needed,omitempty"`
}
