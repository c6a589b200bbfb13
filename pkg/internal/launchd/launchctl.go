package launchd

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os/exec"
	"slices"
	"strings"
	"time"
)

// ErrNoDomain says that launchd takes no jobs of this user here.
var ErrNoDomain = errors.New("launchd has no domain for jobs of this user here")

// Timeout bounds each call of launchctl, which waits for launchd.
const Timeout = 10 * time.Second

// drainTime is how long the output of a launchctl that was killed is waited for.
const drainTime = time.Second

// Control asks launchd, as one user.
type Control struct {
	// UID is the user, by whose number his domains are called.
	UID int
	// Run runs launchctl, and gives what it printed and its exit code; an error says that it
	// could not be run, or gave no answer in time.
	Run func(ctx context.Context, args ...string) (out string, code int, err error)
}

// New asks this machine's launchd.
func New(uid int) *Control { return &Control{UID: uid, Run: run} }

func run(ctx context.Context, args ...string) (string, int, error) {
	ctx, cancel := context.WithTimeout(ctx, Timeout)
	defer cancel()
	var out bytes.Buffer
	cmd := exec.CommandContext(ctx, "/bin/launchctl", args...)
	cmd.Stdout, cmd.Stderr, cmd.WaitDelay = &out, &out, drainTime
	err := cmd.Run()
	if ctx.Err() != nil {
		return "", 0, fmt.Errorf("launchctl %s: no answer: %w", args[0], ctx.Err())
	}
	if exit, ok := errors.AsType[*exec.ExitError](err); ok && exit.Exited() {
		return out.String(), exit.ExitCode(), nil
	}
	if err != nil {
		return "", 0, fmt.Errorf("launchctl %s: %w", args[0], err)
	}
	return out.String(), 0, nil
}

// domains are where jobs of the user can be: that of his login with windows, which is not there
// over ssh when nobody sits at the machine, and that of all of his processes.
func (c *Control) domains() []string {
	return []string{fmt.Sprintf("gui/%d", c.UID), fmt.Sprintf("user/%d", c.UID)}
}

// Domains are those that answer, the better one first. None: [ErrNoDomain], or why launchctl could
// not be asked.
func (c *Control) Domains(ctx context.Context) (all []string, err error) {
	for _, d := range c.domains() {
		_, code, rerr := c.Run(ctx, "print", d)
		switch {
		case rerr != nil:
			err = errors.Join(err, rerr)
		case code == 0:
			all = append(all, d)
		}
	}
	if len(all) > 0 {
		return all, nil
	}
	if err == nil {
		err = ErrNoDomain
	}
	return nil, err
}

// Manager is what launchd calls the kind of login that we are in: Aqua, Background, System; for
// people.
func (c *Control) Manager(ctx context.Context) (string, error) {
	out, code, err := c.Run(ctx, "managername")
	if err == nil && code != 0 {
		err = fmt.Errorf("launchctl managername: %s", said(out, code))
	}
	if err != nil {
		return "", err
	}
	name, _, _ := strings.Cut(strings.TrimSpace(out), "\n")
	return name, nil
}

// Start has launchd start the job that a file describes, in the first domain that takes it, which
// it gives. That the job runs by then is not said.
func (c *Control) Start(ctx context.Context, plist string) (domain string, err error) {
	domains, err := c.Domains(ctx)
	if err != nil {
		return "", err
	}
	for _, d := range domains {
		out, code, rerr := c.Run(ctx, "bootstrap", d, plist)
		if rerr == nil && code == 0 {
			return d, nil
		}
		if rerr == nil {
			rerr = errors.New(said(out, code))
		}
		err = errors.Join(err, fmt.Errorf("start a job in %s: %w", d, rerr))
	}
	return "", err
}

// End has launchd forget a job, wherever it is; one that is not there is none too many. launchd
// ends the job's own process if it lives, and nothing else of it: see to that before.
func (c *Control) End(ctx context.Context, label string) (err error) {
	for _, d := range c.domains() {
		target := d + "/" + label
		known, perr := c.known(ctx, target)
		if perr == nil && !known {
			continue
		}
		// It says "in progress" (36) of one that takes its time, and of one that is gone by now that
		// it is not there: what counts is whether it is there still.
		out, code, rerr := c.Run(ctx, "bootout", target)
		if rerr != nil {
			err = errors.Join(err, rerr)
			continue
		}
		if code == 0 {
			continue
		}
		if known, perr := c.known(ctx, target); perr != nil || known {
			err = errors.Join(err, fmt.Errorf("end the job %s: %s", target, said(out, code)), perr)
		}
	}
	return err
}

func (c *Control) known(ctx context.Context, target string) (bool, error) {
	_, code, err := c.Run(ctx, "print", target)
	return code == 0, err
}

// Labels are those of the user's jobs that begin so. What launchctl prints of a domain is made
// for people; a label in it is a word by itself, however the rest of it changes.
func (c *Control) Labels(ctx context.Context, prefix string) ([]string, error) {
	var all []string
	var failed error
	for _, d := range c.domains() {
		out, code, err := c.Run(ctx, "print", d)
		if err != nil {
			failed = errors.Join(failed, err)
		} else if code == 0 {
			all = append(all, labels(out, prefix)...)
		}
	}
	slices.Sort(all)
	return slices.Compact(all), failed
}

// labels finds the words of a text that begin with prefix and are labels.
func labels(text, prefix string) []string {
	var all []string
	for word := range strings.FieldsFuncSeq(text, func(r rune) bool { return !labelRune(r) }) {
		if rest, ok := strings.CutPrefix(word, prefix); ok && rest != "" {
			all = append(all, strings.TrimRight(word, "."))
		}
	}
	return all
}

func labelRune(r rune) bool {
	return r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z' || r >= '0' && r <= '9' || r == '.' || r == '-' || r == '_'
}

// said is what launchctl had to say, in one line.
func said(out string, code int) string {
	out = strings.Join(strings.Fields(out), " ")
	const most = 200
	if len(out) > most {
		out = strings.ToValidUTF8(out[:most], "") + "…"
	}
	if out == "" {
		return fmt.Sprintf("launchctl ended with %d", code)
	}
	return fmt.Sprintf("%s (launchctl ended with %d)", out, code)
}
