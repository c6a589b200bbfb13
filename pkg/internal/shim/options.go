package shim

import (
	"slices"
	"strings"
)

// options tells apart the options of a command that come before its verb.
type options struct {
	// flags take no value, values take one. Short ones are of one letter.
	flags, values []string
}

// skip gives how many arguments at the start are options with their values. ok is
// false if one is not known: it cannot be told then whether the next one is its value.
// each, if not nil, is given every option by the name it was called by, without dashes.
func (o options) skip(args []string, each func(name, value string)) (n int, ok bool) {
	say := func(name, value string) {
		if each != nil {
			each(name, value)
		}
	}
	for n < len(args) {
		a := args[n]
		switch {
		case a == "--":
			return n, false // what follows is no verb
		case !strings.HasPrefix(a, "-") || a == "-":
			return n, true
		case strings.HasPrefix(a, "--"):
			name, value, joined := strings.Cut(a[2:], "=")
			switch {
			case slices.Contains(o.flags, name):
				say(name, value)
				n++
			case slices.Contains(o.values, name) && joined:
				say(name, value)
				n++
			case slices.Contains(o.values, name) && n+1 < len(args):
				say(name, args[n+1])
				n += 2
			default:
				return n, false
			}
		default:
			used, ok := o.letters(args[n:], say)
			if !ok {
				return n, false
			}
			n += used
		}
	}
	return n, true
}

// letters takes an argument of letters, of which the last may have a value.
func (o options) letters(args []string, say func(name, value string)) (used int, ok bool) {
	all := args[0][1:]
	for i := range len(all) {
		name := all[i : i+1]
		rest := strings.TrimPrefix(all[i+1:], "=")
		switch {
		case slices.Contains(o.flags, name):
			say(name, "")
		case slices.Contains(o.values, name) && i+1 < len(all):
			say(name, rest)
			return 1, true
		case slices.Contains(o.values, name) && len(args) > 1:
			say(name, args[1])
			return 2, true
		default:
			return 0, false
		}
	}
	return 1, true
}
