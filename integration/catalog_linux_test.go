package integration_test

import (
	"encoding/json"
	"testing"
)

// technique is a row of escape list --json.
type technique struct {
	ID          string   `json:"id"`
	Description string   `json:"description"`
	Needs       []string `json:"needs"`
	Fixtures    []string `json:"fixtures"`
	RootExits   bool     `json:"root_exits"`
	Payloads    int      `json:"payloads"`
	Still       bool     `json:"still"`
	Expect      string   `json:"expect"`
	SeenBy      string   `json:"seen_by"`
	Missing     []string `json:"missing"`
}

// catalog asks the program of the payloads what it can do here.
func (r *rig) catalog() []technique {
	r.t.Helper()
	o := r.start(escape(), "list", "--json").wait().must(r.t, 0, "escape list")
	var all []technique
	if err := json.Unmarshal(o.stdout, &all); err != nil {
		r.t.Fatalf("escape list --json: %v", err)
	}
	return all
}

// technique gives one row, or skips the test where this machine cannot do it.
func (r *rig) technique(id string) technique {
	r.t.Helper()
	for _, t := range r.catalog() {
		if t.ID == id {
			t.need(r.t)
			return t
		}
	}
	r.t.Fatalf("no technique %s", id)
	return technique{}
}

// need skips where something is missing, and says what.
func (k technique) need(t *testing.T) {
	t.Helper()
	if len(k.Missing) > 0 {
		t.Skipf("%s (%s) needs %v, which this machine or user does not have", k.ID, k.Description, k.Missing)
	}
}
