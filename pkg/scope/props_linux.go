package scope

import (
	"fmt"
	"math"
	"strings"
	"time"

	sd "github.com/coreos/go-systemd/v22/dbus"
	"github.com/godbus/dbus/v5"
	"github.com/opencontainers/runtime-spec/specs-go"
	"github.com/sessionbox/sessionbox/pkg/memlimit"
)

// infinity is how unit properties of type t say "no limit".
const infinity = uint64(math.MaxUint64)

// stopTime is what the anchor unit's processes get between SIGTERM and SIGKILL
// when somebody stops the unit through systemd. Our own close does not use it.
const stopTime = 2 * time.Second

func prop(name string, value any) sd.Property {
	return sd.Property{Name: name, Value: dbus.MakeVariant(value)}
}

// limitProps are the ceilings as unit properties.
func limitProps(l memlimit.Limits) ([]sd.Property, error) {
	list, err := l.Properties()
	if err != nil {
		return nil, err
	}
	var props []sd.Property
	for _, p := range list {
		props = append(props, prop(p.Name, p.Value))
	}
	return props, nil
}

// sliceProps makes a slice that counts: accounting turns the controllers on in
// the slices above, so that a ceiling can be set later. Delegate= and
// TimeoutStopUSec= are refused on slices, Slice= is what the name says.
func sliceProps(description string, limits []sd.Property) []sd.Property {
	return append([]sd.Property{
		sd.PropDescription(oneLine(description)),
		prop("CollectMode", "inactive-or-failed"), // else a failed one blocks its name
		prop("MemoryAccounting", true),
		prop("TasksAccounting", true),
	}, limits...)
}

// workProps are what the two kinds of anchor unit have in common. Delegate= makes
// systemd keep its hands off what we make below; TasksMax= as the manager's
// default (15 % of the machine's) would be a ceiling that nobody set.
func (s Spec) workProps() []sd.Property {
	return []sd.Property{
		sd.PropDescription(oneLine(s.Description) + " (tasks)"),
		sd.PropSlice(s.SliceUnit()),
		prop("Delegate", true),
		prop("CollectMode", "inactive-or-failed"),
		prop("KillMode", "control-group"),
		prop("SendSIGHUP", true), // interactive shells ignore SIGTERM
		prop("TimeoutStopUSec", uint64(stopTime/time.Microsecond)),
		prop("MemoryAccounting", true),
		prop("TasksAccounting", true),
		prop("TasksMax", infinity),
	}
}

// serviceProps are those of the anchor as a service. Type=notify: the job is done
// when the anchor has made room for the leaves. ExitType=cgroup (systemd 250):
// the unit lives on while any task does, whatever became of the anchor.
// OOMPolicy=continue: the kernel's kill of one process is not the end of all.
// No OOMScoreAdjust=: commands are not the anchor's children, and that a small
// process that can be made again is spared is not worth a refusal.
func (s Spec) serviceProps() []sd.Property {
	return append(s.workProps(),
		sd.PropType("notify"),
		prop("NotifyAccess", "main"),
		prop("ExitType", "cgroup"),
		prop("OOMPolicy", "continue"),
		prop("Restart", "no"),
		prop("WorkingDirectory", "/"), // a user's manager would hold on to the home directory
		prop("Environment", append([]string{}, s.AnchorEnv...)),
		execStart(s.Anchor),
	)
}

// scopeProps are those of the anchor as a scope around the process pid, for
// managers below 250. Those have no OOMPolicy= for scopes and do not act on a
// kernel OOM kill in one; 252 does, and kills the whole scope, but there the
// service is used.
func (s Spec) scopeProps(pid int) []sd.Property {
	return append(s.workProps(), sd.PropPids(uint32(pid)))
}

// sliceLimits are the ceilings of OCI resources for that slice.
func sliceLimits(unit string, r *specs.LinuxResources) ([]sd.Property, error) {
	l, err := memlimit.FromOCI(r)
	if err == nil {
		var props []sd.Property
		if props, err = limitProps(l); err == nil {
			return props, nil
		}
	}
	return nil, fmt.Errorf("limits of %s: %w", unit, err)
}

// execStart is the command line of a service. The manager replaces variables in
// the arguments, not in the path, unless their $ is doubled.
func execStart(argv []string) sd.Property {
	type command struct {
		Path             string
		Args             []string
		UncleanIsFailure bool
	}
	args := make([]string, len(argv))
	for i, a := range argv {
		args[i] = strings.ReplaceAll(a, "$", "$$")
	}
	return prop("ExecStart", []command{{Path: argv[0], Args: args}})
}

// oneLine keeps a text from becoming several lines of a unit file.
func oneLine(s string) string {
	return strings.Map(func(r rune) rune {
		if r < ' ' || r == 0x7f {
			return ' '
		}
		return r
	}, strings.ToValidUTF8(s, "?"))
}

// refusal names the property that an error of the manager is about.
func refusal(unit string, props []sd.Property, err error) error {
	if err == nil {
		return nil
	}
	text := errText(err)
	for _, p := range props {
		if mentions(text, p.Name) {
			return &PropertyError{Unit: unit, Name: p.Name, Value: p.Value.Value(), Err: err}
		}
	}
	if errName(err) == "org.freedesktop.DBus.Error.InvalidArgs" {
		return &PropertyError{Unit: unit, Err: fmt.Errorf("%s: %w", list(props), err)}
	}
	return err
}

// mentions says whether text holds name as a word: "MemoryMax", not
// "MemoryMaxScale".
func mentions(text, name string) bool {
	for word := range strings.FieldsFuncSeq(text, func(r rune) bool {
		return (r < 'a' || r > 'z') && (r < 'A' || r > 'Z')
	}) {
		if word == name {
			return true
		}
	}
	return false
}

func list(props []sd.Property) string {
	var all []string
	for _, p := range props {
		all = append(all, fmt.Sprintf("%s=%v", p.Name, p.Value.Value()))
	}
	return strings.Join(all, " ")
}
