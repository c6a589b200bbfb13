package main

import (
	"bytes"
	"fmt"
	"strings"

	"github.com/sessionbox/sessionbox/cmd/sessionbox/internal/cli"
	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
)

// manPages makes sessionbox.1 and one page for each verb.
func manPages() (map[string][]byte, error) {
	root := cli.Root()
	root.InitDefaultHelpCmd()
	files := map[string][]byte{}
	pages := []*cobra.Command{root}
	for _, c := range root.Commands() {
		if c.IsAvailableCommand() && c.Name() != "help" {
			pages = append(append(pages, c), c.Commands()...)
		}
	}
	for _, c := range pages {
		files["man/"+pageName(c)+".1"] = page(c, pages)
	}
	return files, nil
}

func pageName(c *cobra.Command) string { return strings.ReplaceAll(c.CommandPath(), " ", "-") }

func page(c *cobra.Command, all []*cobra.Command) []byte {
	var b bytes.Buffer
	name := pageName(c)
	c.InitDefaultHelpFlag()
	// No date: the page must be the same whenever it is made.
	fmt.Fprintf(&b, ".TH %s 1 \"\" \"sessionbox\" \"User Commands\"\n", strings.ToUpper(escape(name)))
	short := strings.ToLower(c.Short[:1]) + c.Short[1:]
	fmt.Fprintf(&b, ".SH NAME\n%s \\- %s\n", escape(name), escape(short))
	use := c.UseLine()
	if c.HasAvailableSubCommands() && !c.HasParent() {
		use = c.CommandPath() + " VERB [flags]"
	}
	fmt.Fprintf(&b, ".SH SYNOPSIS\n.B %s\n", escape(use))
	sections := split(c.Long)
	fmt.Fprintf(&b, ".SH DESCRIPTION\n")
	text(&b, sections[0].body)
	if c.HasAvailableSubCommands() {
		fmt.Fprintf(&b, ".SH VERBS\n")
		for _, s := range c.Commands() {
			if s.IsAvailableCommand() {
				fmt.Fprintf(&b, ".TP\n.B %s\n%s\n", escape(s.Name()), escape(s.Short))
			}
		}
	}
	options(&b, "OPTIONS", c.NonInheritedFlags())
	options(&b, "GLOBAL OPTIONS", c.InheritedFlags())
	for _, s := range sections[1:] {
		fmt.Fprintf(&b, ".SH %s\n", strings.ToUpper(escape(s.title)))
		text(&b, s.body)
	}
	if c.Example != "" {
		fmt.Fprintf(&b, ".SH EXAMPLES\n.nf\n")
		for line := range strings.Lines(c.Example) {
			b.WriteString(escape(strings.TrimPrefix(strings.TrimRight(line, "\n"), "  ")) + "\n")
		}
		b.WriteString(".fi\n")
	}
	fmt.Fprintf(&b, ".SH SEE ALSO\n")
	var others []string
	for _, o := range all {
		if o != c {
			others = append(others, fmt.Sprintf("\\fB%s\\fP(1)", escape(pageName(o))))
		}
	}
	if c.HasParent() {
		others = others[:1]
	}
	b.WriteString(strings.Join(others, ", ") + "\n")
	return b.Bytes()
}

type section struct{ title, body string }

// split takes a long help apart at the lines that end with a colon and start a
// block ("Exit status:").
func split(long string) []section {
	all := []section{{}}
	blank := true
	for line := range strings.Lines(long) {
		trimmed := strings.TrimRight(line, "\n")
		title, ok := strings.CutSuffix(trimmed, ":")
		if blank && ok && title != "" && !strings.HasPrefix(title, " ") && len(title) < 20 {
			all = append(all, section{title: title})
		} else {
			all[len(all)-1].body += line
		}
		blank = trimmed == ""
	}
	return all
}

// text writes paragraphs; indented lines stay as they are.
func text(b *bytes.Buffer, body string) {
	verbatim, first := false, true
	for line := range strings.Lines(strings.Trim(body, "\n") + "\n") {
		line = strings.TrimRight(line, "\n")
		indented := strings.HasPrefix(line, "  ")
		if indented != verbatim && line != "" {
			if indented {
				b.WriteString(".nf\n")
			} else {
				b.WriteString(".fi\n")
			}
			verbatim = indented
		}
		switch {
		case line == "" && !verbatim && !first:
			b.WriteString(".PP\n")
		case line == "":
		case indented:
			b.WriteString(code(line[2:]) + "\n")
		default:
			b.WriteString(code(line) + "\n")
		}
		first = false
	}
	if verbatim {
		b.WriteString(".fi\n")
	}
}

func options(b *bytes.Buffer, title string, f *pflag.FlagSet) {
	if !f.HasAvailableFlags() {
		return
	}
	fmt.Fprintf(b, ".SH %s\n", title)
	f.VisitAll(func(o *pflag.Flag) {
		if o.Hidden {
			return
		}
		b.WriteString(".TP\n")
		if o.Shorthand != "" {
			fmt.Fprintf(b, "\\fB\\-%s\\fP, ", escape(o.Shorthand))
		}
		fmt.Fprintf(b, "\\fB\\-\\-%s\\fP", escape(o.Name))
		kind, usage := pflag.UnquoteUsage(o)
		if kind != "" {
			fmt.Fprintf(b, " \\fI%s\\fP", escape(kind))
		}
		fmt.Fprintf(b, "\n%s\n", code(usage))
	})
}

// code writes what is in backquotes in bold.
func code(s string) string {
	parts := strings.Split(escape(s), "`")
	for i := 1; i < len(parts); i += 2 {
		if i < len(parts)-1 {
			parts[i] = "\\fB" + parts[i] + "\\fP"
		}
	}
	return strings.Join(parts, "")
}

// escape makes text safe for roff.
func escape(s string) string {
	s = strings.ReplaceAll(s, `\`, `\e`)
	s = strings.ReplaceAll(s, "-", `\-`)
	if strings.HasPrefix(s, ".") || strings.HasPrefix(s, "'") {
		s = `\&` + s
	}
	return s
}
