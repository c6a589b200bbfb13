package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"maps"
	"reflect"
	"slices"

	"github.com/google/jsonschema-go/jsonschema"

	"github.com/sessionbox/sessionbox/cmd/sessionbox/internal/cli"
	"github.com/sessionbox/sessionbox/pkg/guard"
	"github.com/sessionbox/sessionbox/pkg/memlimit"
	"github.com/sessionbox/sessionbox/pkg/session"
	"github.com/sessionbox/sessionbox/pkg/store"
)

// contract is what the command answers with --json, by the name of its schema.
// Those that are lists are arrays of it.
var contract = []struct {
	name, what string
	typ        reflect.Type
}{
	{"info", "A session: open, inspect, and in lists freeze, thaw.", reflect.TypeFor[session.Info]()},
	{"list", "Sessions: ls, tree.", reflect.TypeFor[[]session.Info]()},
	{"receipt", "What a close found and did. close and history answer with an array of these; run says it on stderr.", reflect.TypeFor[session.Receipt]()},
	{"task", "A task: exec -d, wait; exec says it on stderr when the command has ended.", reflect.TypeFor[cli.Task]()},
	{"process", "A process: ps answers with an array of these.", reflect.TypeFor[session.Process]()},
	{"stats", "What a session uses, between two looks at it: stats writes one on each line.", reflect.TypeFor[session.Stats]()},
	{"logline", "A line of a task's log, or a part of one: logs writes one on each line.", reflect.TypeFor[cli.LogLine]()},
	{"event", "An event: events writes one on each line.", reflect.TypeFor[store.Event]()},
	{"ceiling", "A limit and whether it is in force: limit answers with an array of these.", reflect.TypeFor[memlimit.Ceiling]()},
	{"check", "One line of the doctor, who answers with an array of these.", reflect.TypeFor[session.Check]()},
	{"adopted", "What adopt did.", reflect.TypeFor[session.Adopted]()},
	{"killed", "What kill did: an array of these.", reflect.TypeFor[cli.Killed]()},
	{"hibernated", "What hibernate did: an array of these.", reflect.TypeFor[session.HibernateReport]()},
	{"reconciliation", "What reconcile found and did.", reflect.TypeFor[session.Reconciliation]()},
	{"installed", "What guard install did.", reflect.TypeFor[guard.Installed]()},
	{"version", "Which program this is.", reflect.TypeFor[cli.Version]()},
	{"error", "A failure, one line on stderr.", reflect.TypeFor[cli.Failure]()},
}

// schemas makes one file for each type of the contract.
func schemas() (map[string][]byte, error) {
	special := map[reflect.Type]*jsonschema.Schema{
		reflect.TypeFor[memlimit.Size]():   {Type: "string", Description: "bytes with a unit of 1024, a share in percent, or max"},
		reflect.TypeFor[json.RawMessage](): {Type: "object"},
	}
	files := map[string][]byte{}
	for _, c := range contract {
		opts := &jsonschema.ForOptions{TypeSchemas: maps.Clone(special)}
		// A receipt holds those of the sessions inside.
		inside := &jsonschema.Schema{Type: "object", Description: "a receipt, see receipt.json"}
		if c.typ == reflect.TypeFor[session.Receipt]() {
			inside = &jsonschema.Schema{Ref: "#"}
		}
		opts.TypeSchemas[reflect.TypeFor[[]session.Receipt]()] = &jsonschema.Schema{Type: "array", Items: inside}
		s, err := jsonschema.ForType(c.typ, opts)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", c.name, err)
		}
		loosen(s)
		s.Schema = "https://json-schema.org/draft/2020-12/schema"
		s.Title, s.Description = "sessionbox "+c.name+", schema 1", c.what
		var b bytes.Buffer
		e := json.NewEncoder(&b)
		e.SetEscapeHTML(false)
		e.SetIndent("", "  ")
		if err := e.Encode(s); err != nil {
			return nil, fmt.Errorf("%s: %w", c.name, err)
		}
		files["schema/"+c.name+".json"] = b.Bytes()
	}
	return files, nil
}

// loosen allows fields that later versions add, and takes back what Go's nil
// would allow: lists are never null, and what is not known is left out.
func loosen(s *jsonschema.Schema) {
	if s == nil {
		return
	}
	if s.Properties != nil {
		s.AdditionalProperties = nil
	}
	if i := slices.Index(s.Types, "null"); i >= 0 {
		s.Types = slices.Delete(slices.Clone(s.Types), i, i+1)
	}
	if len(s.Types) == 1 {
		s.Type, s.Types = s.Types[0], nil
	}
	for _, p := range s.Properties {
		loosen(p)
	}
	loosen(s.Items)
	loosen(s.AdditionalProperties)
}
