package cli

import (
	"errors"
	"fmt"
	"maps"
	"os"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/sessionbox/sessionbox/pkg/memlimit"
	"github.com/sessionbox/sessionbox/pkg/session"
	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
)

// size is the value of a flag for an amount of memory.
type size struct{ *memlimit.Size }

func (s size) Set(text string) (err error) {
	*s.Size, err = memlimit.ParseSize(text)
	return err
}

func (s size) Type() string { return "SIZE" }

// count is the value of a flag for a number of processes.
type count struct{ *memlimit.Size }

func (c count) Set(text string) (err error) {
	*c.Size, err = memlimit.ParseCount(text)
	return err
}

func (c count) Type() string { return "N" }

func (s size) String() string  { return sizeText(s.Size) }
func (c count) String() string { return sizeText(c.Size) }

func sizeText(s *memlimit.Size) string {
	if s == nil || !s.IsSet() {
		return ""
	}
	return s.String()
}

// duration is the value of a flag for a time span; nil until it is set.
type duration struct{ at **time.Duration }

func (d duration) Set(text string) error {
	v, err := session.ParseDuration(text)
	if err == nil {
		*d.at = &v
	}
	return err
}

func (d duration) Type() string { return "DURATION" }

func (d duration) String() string {
	if d.at == nil || *d.at == nil {
		return ""
	}
	return (*d.at).String()
}

// value is the duration, 0 when it was not set.
func value(d *time.Duration) time.Duration {
	if d == nil {
		return 0
	}
	return *d
}

// name is the value of a flag for a session's name.
type name struct{ *string }

func (n name) Set(text string) error {
	if text == "" {
		return errors.New("an empty name; is a variable empty?")
	}
	*n.string = text
	return nil
}

func (n name) Type() string { return "NAME" }

func (n name) String() string {
	if n.string == nil {
		return ""
	}
	return *n.string
}

// pid is the value of a flag for a process; nil until it is set.
type pid struct{ at **int }

func (p pid) Set(text string) error {
	n, err := strconv.Atoi(text)
	if err != nil {
		return fmt.Errorf("%q is no process id", text)
	}
	*p.at = &n
	return nil
}

func (p pid) Type() string { return "PID" }

func (p pid) String() string {
	if p.at == nil || *p.at == nil {
		return ""
	}
	return strconv.Itoa(**p.at)
}

// generationFlag adds the flag that says for which owner a call is made.
func generationFlag(f *pflag.FlagSet, generation *int) {
	f.IntVar(generation, "generation", 0, "act for the owner of generation `N`, see open --json")
}

// labels is the value of a flag that can be given several times: key=value.
type labels struct{ m *map[string]string }

func (l labels) Set(text string) error {
	k, v, ok := strings.Cut(text, "=")
	if !ok || k == "" {
		return fmt.Errorf("%q is not KEY=VALUE", text)
	}
	if *l.m == nil {
		*l.m = map[string]string{}
	}
	(*l.m)[k] = v
	return nil
}

func (l labels) Type() string { return "KEY=VALUE" }

func (l labels) String() string {
	if l.m == nil {
		return ""
	}
	var all []string
	for _, k := range slices.Sorted(maps.Keys(*l.m)) {
		all = append(all, k+"="+(*l.m)[k])
	}
	return strings.Join(all, ",")
}

// limitFlags adds the ceilings.
func limitFlags(f *pflag.FlagSet, l *memlimit.Limits) {
	f.Var(size{&l.MemoryMax}, "memory-max", "hard ceiling: beyond it the kernel kills (512M, 4G, 75%, max)")
	f.Var(size{&l.MemoryHigh}, "memory-high", "brake: beyond it everything in the box is slowed down")
	f.Var(size{&l.SwapMax}, "swap-max", "ceiling of swap")
	f.Var(count{&l.PidsMax}, "pids-max", "ceiling of processes and threads")
}

// memoryFlags add how memory is watched.
func memoryFlags(f *pflag.FlagSet, o *memoryOptions) {
	f.StringVar(&o.warn, "memory-warn", "", "`WHEN` to warn of its memory: on or off (default: on with a ceiling)")
	f.StringVar(&o.onWarn, "on-warn", "", "`COMMAND` for the shell, run with each warning; - is none")
	f.StringVar(&o.notify, "notify", "", "`WHERE` else to warn: desktop or none")
	f.StringVar(&o.steps, "memory-steps", "", "`STEPS` if it is short: warn,"+stepsWords)
	f.BoolVar(&o.protected, "protected", false, "do nothing to it when memory is short")
}

// stepsWords are the steps that guards of this version take.
const stepsWords = "hold,hibernate,brake,freeze,close"

// memoryOptions are the flags that say how memory is watched.
type memoryOptions struct {
	warn, onWarn, notify, steps string
	protected                   bool
}

func (o *memoryOptions) options() (session.MemoryOptions, error) {
	mo := session.MemoryOptions{Warn: o.warn, OnWarn: o.onWarn, Notify: o.notify, Protected: o.protected}
	switch o.warn {
	case "", "on", "off":
	default:
		return mo, usagef("--memory-warn: not %q", o.warn).hintf("want on or off")
	}
	switch o.notify {
	case "", "desktop", "none":
	default:
		return mo, usagef("--notify: not %q", o.notify).hintf("want desktop or none")
	}
	if o.steps != "" {
		steps, err := memlimit.ParseSteps(o.steps)
		if err != nil {
			return mo, usagef("--memory-steps: %v", err).hintf("e.g. --memory-steps warn,freeze")
		}
		mo.Steps = &steps
	}
	return mo, nil
}

// oomFlag adds what the kernel kills when memory runs out.
func oomFlag(f *pflag.FlagSet, policy *string) {
	f.StringVar(policy, "oom", "", "kill a `process` (default) or the whole task when memory runs out")
}

// Flags that an environment variable stands for carry this annotation.
const mirrored = "sessionbox_env"

// mirror lets SESSIONBOX_<NAME> stand for flags.
func mirror(f *pflag.FlagSet, names ...string) {
	for _, n := range names {
		f.SetAnnotation(n, mirrored, []string{"SESSIONBOX_" + strings.ToUpper(strings.ReplaceAll(n, "-", "_"))})
	}
}

// fromEnv sets from the environment what the command line leaves open.
func fromEnv(f *pflag.FlagSet) error {
	var failed error
	f.VisitAll(func(fl *pflag.Flag) {
		env := fl.Annotations[mirrored]
		if fl.Changed || len(env) == 0 {
			return
		}
		if v := os.Getenv(env[0]); v != "" {
			if err := f.Set(fl.Name, v); err != nil {
				failed = errors.Join(failed, usagef("%s: %v", env[0], causeOf(err)).hintf("it stands for --%s", fl.Name))
			}
		}
	})
	return failed
}

// causeOf drops pflag's words, which repeat the flag and the value.
func causeOf(err error) error {
	if bad, ok := errors.AsType[*pflag.InvalidValueError](err); ok {
		return bad.Unwrap()
	}
	return err
}

// flagError makes a usage error of what pflag found, and says what was
// probably meant.
func flagError(cmd *cobra.Command, err error) error {
	if errors.Is(err, pflag.ErrHelp) {
		return err
	}
	if bad, ok := errors.AsType[*pflag.InvalidValueError](err); ok {
		return usagef("--%s: %v", bad.GetFlag().Name, bad.Unwrap()).hintf("`%s --help` explains it", cmd.CommandPath())
	}
	if no, ok := errors.AsType[*pflag.NotExistError](err); ok {
		var names []string
		cmd.Flags().VisitAll(func(f *pflag.Flag) { names = append(names, f.Name) })
		name := no.GetSpecifiedName()
		if near := nearest(name, names); near != "" && len(name) > 1 {
			return usagef("unknown flag --%s", name).hintf("did you mean --%s?", near)
		}
	}
	return usagef("%v", err).hintf("`%s --help` lists the flags", cmd.CommandPath())
}

// wantsJSON looks for --json where flags of ours can be.
func wantsJSON(args []string) bool {
	for _, a := range args {
		switch a {
		case "--":
			return false
		case "--json", "--json=true":
			return true
		}
	}
	return false
}

// nearest is the name that was probably meant, "" if none is near.
func nearest(word string, names []string) string {
	best, least := "", 3
	for _, n := range names {
		if d := distance(word, n); d < least && 2*d <= len(n) {
			best, least = n, d
		}
	}
	return best
}

// distance counts the letters to insert, drop, change or swap with the next.
func distance(a, b string) int {
	prev := make([]int, len(b)+1)
	var before []int
	for j := range prev {
		prev[j] = j
	}
	for i := range len(a) {
		row := make([]int, len(b)+1)
		row[0] = i + 1
		for j := range len(b) {
			cost := 1
			if a[i] == b[j] {
				cost = 0
			}
			row[j+1] = min(prev[j]+cost, prev[j+1]+1, row[j]+1)
			if i > 0 && j > 0 && a[i] == b[j-1] && a[i-1] == b[j] {
				row[j+1] = min(row[j+1], before[j-1]+1)
			}
		}
		before, prev = prev, row
	}
	return prev[len(b)]
}
