package main

import (
	"encoding/json"
	"fmt"
	"io"
	"strings"
	"text/tabwriter"
)

// list prints the table, with what this machine lacks for each technique.
func list(w io.Writer, asJSON bool) error {
	all := techniques()
	for i := range all {
		t := &all[i]
		t.Needs, t.Fixtures = some(t.Needs), some(t.Fixtures)
		t.Missing = missing(t.Needs)
	}
	if asJSON {
		enc := json.NewEncoder(w)
		enc.SetIndent("", "  ")
		return enc.Encode(all)
	}
	tw := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	for _, t := range all {
		fmt.Fprintf(tw, "%s\t%s\t%s\t%s\n", t.ID, t.Expect, t.Description, strings.Join(t.Missing, ","))
	}
	return tw.Flush()
}

// some makes an empty list of nil, which JSON would show as null.
func some(s []string) []string {
	if s == nil {
		return []string{}
	}
	return s
}
