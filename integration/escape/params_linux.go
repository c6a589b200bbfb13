package main

import (
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"
)

// params is what every stage is told. All of it travels in argv, never in the
// environment: a payload must find its files also after its environment was
// scrubbed.
type params struct {
	dir    string    // counter, pids, and what else a technique leaves behind
	until  time.Time // end of every payload's life
	label  string    // third column of pids
	ignore string    // signals a payload is deaf to: "TERM,HUP"
	noisy  bool      // a payload that also writes to stderr
	become int       // uid a payload takes on after it has opened its files; -1 none
	arg    string    // whatever else one stage needs
	outCg  string    // cgroup directory outside of the box that the test made
	socket string    // socket of a server that was there before the session
	ssh    string    // user@host that lets this user in without asking
}

// parseParams reads the flags. The life limit is given as a duration by people and
// as a fixed end by one stage to the next, so that restarting cannot prolong it.
func parseParams(name string, args []string) (params, error) {
	p := params{}
	fs := flag.NewFlagSet(name, flag.ContinueOnError)
	fs.StringVar(&p.dir, "dir", os.Getenv("SESSIONBOX_ESCAPE_DIR"), "directory for counter and pids")
	life := fs.Duration("life", 10*time.Minute, "longest life of a payload")
	until := fs.Int64("until", 0, "end of life as Unix milliseconds; overrides --life")
	fs.StringVar(&p.label, "label", name, "label in pids")
	fs.StringVar(&p.ignore, "ignore", "", "signals to ignore, by name")
	fs.BoolVar(&p.noisy, "noisy", false, "write to stderr at every tick")
	fs.IntVar(&p.become, "become", -1, "uid to take on")
	fs.StringVar(&p.arg, "arg", "", "argument of a stage")
	fs.StringVar(&p.outCg, "out-cgroup", "", "cgroup directory outside of the box")
	fs.StringVar(&p.socket, "socket", "", "socket of a server outside of the box")
	fs.StringVar(&p.ssh, "ssh", "", "user@host reachable by ssh without a question")
	if err := fs.Parse(args); err != nil {
		return p, err
	}
	if p.dir == "" {
		return p, fmt.Errorf("%s: --dir or SESSIONBOX_ESCAPE_DIR is needed", name)
	}
	dir, err := filepath.Abs(p.dir)
	if err != nil {
		return p, err
	}
	p.dir = dir
	p.until = time.Now().Add(*life)
	if *until > 0 {
		p.until = time.UnixMilli(*until)
	}
	return p, nil
}

// args writes the parameters for the next stage.
func (p params) args() []string {
	a := []string{"--dir", p.dir, "--until", strconv.FormatInt(p.until.UnixMilli(), 10)}
	for flag, v := range map[string]string{
		"--label": p.label, "--ignore": p.ignore, "--arg": p.arg,
		"--out-cgroup": p.outCg, "--socket": p.socket, "--ssh": p.ssh,
	} {
		if v != "" {
			a = append(a, flag, v)
		}
	}
	if p.noisy {
		a = append(a, "--noisy")
	}
	if p.become >= 0 {
		a = append(a, "--become", strconv.Itoa(p.become))
	}
	return a
}

// path is a file of the technique's directory.
func (p params) path(name string) string { return filepath.Join(p.dir, name) }

// called returns p with another label.
func (p params) called(label string) params { p.label = label; return p }

// deaf returns p with signals that the payload ignores.
func (p params) deaf(signals ...string) params { p.ignore = strings.Join(signals, ","); return p }

// with returns p with another argument.
func (p params) with(arg string) params { p.arg = arg; return p }

// shellLine is a command for sh that runs a payload. The paths of the tests hold no
// quotes; anything else would be quoted wrongly and is refused.
func (p params) shellLine() (string, error) {
	words := append([]string{self(), "payload"}, p.args()...)
	for i, w := range words {
		if strings.ContainsAny(w, "'\n") {
			return "", fmt.Errorf("cannot quote %q", w)
		}
		words[i] = "'" + w + "'"
	}
	return strings.Join(words, " "), nil
}
