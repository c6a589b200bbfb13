package config

import (
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/sessionbox/sessionbox/pkg/memlimit"
)

// The types of values: each reads itself, so that the TOML library puts the line
// in front of what they find wrong.

type size struct{ memlimit.Size }

func (s *size) UnmarshalText(text []byte) (err error) {
	s.Size, err = memlimit.ParseSize(string(text))
	return err
}

type count struct{ memlimit.Size }

func (c *count) UnmarshalText(text []byte) (err error) {
	c.Size, err = memlimit.ParseCount(string(text))
	return err
}

type duration time.Duration

func (d *duration) UnmarshalText(text []byte) error {
	v, err := ParseDuration(string(text))
	*d = duration(v)
	return err
}

type backend string

func (b *backend) UnmarshalText(text []byte) error {
	switch string(text) {
	case "auto", "systemd", "cgroup", "lineage":
		*b = backend(text)
		return nil
	}
	return fmt.Errorf("backend %q: want auto, systemd, cgroup or lineage", text)
}

type start string

func (s *start) UnmarshalText(text []byte) error {
	switch string(text) {
	case "auto", "never":
		*s = start(text)
		return nil
	}
	return fmt.Errorf("start %q: want auto or never", text)
}

type onOff string

func (o *onOff) UnmarshalText(text []byte) error {
	switch string(text) {
	case "on", "off":
		*o = onOff(text)
		return nil
	}
	return fmt.Errorf("%q: want on or off", text)
}

type notify string

func (n *notify) UnmarshalText(text []byte) error {
	switch string(text) {
	case "none", "desktop":
		*n = notify(text)
		return nil
	}
	return fmt.Errorf("notify %q: want none or desktop", text)
}

const durationForms = "want seconds (90, 1.5) or a duration with units (300ms, 10s, 5m, 1h30m, 2d)"

// MaxDays is the longest duration, in days: a third of what a time.Duration holds, so
// that whoever adds two need not look.
const MaxDays = 36500

// ParseDuration reads a duration as people type it: a bare number is seconds,
// otherwise as time.ParseDuration, with days ("d", 24 hours) in front if wanted.
// Negative durations are errors, and those of more than [MaxDays].
func ParseDuration(text string) (time.Duration, error) {
	s := strings.TrimSpace(text)
	bad := func() (time.Duration, error) {
		return 0, fmt.Errorf("not a duration: %q; %s", text, durationForms)
	}
	switch {
	case s == "":
		return bad()
	case strings.HasPrefix(s, "-"):
		return 0, fmt.Errorf("duration %q is negative", text)
	case s[0] == '+':
		return bad()
	case isNumber(s):
		s += "s"
	}
	const most = MaxDays * 24 * time.Hour
	tooLong := func() (time.Duration, error) {
		return 0, fmt.Errorf("duration %q is too long: the most is %d days", text, MaxDays)
	}
	var days time.Duration
	if num, rest, ok := strings.Cut(s, "d"); ok {
		if !isNumber(num) {
			return bad()
		}
		n, err := strconv.ParseFloat(num, 64)
		if n > MaxDays {
			return tooLong()
		}
		if err != nil {
			return bad()
		}
		if days, s = time.Duration(n*float64(24*time.Hour)), rest; s == "" {
			return days, nil
		}
	}
	d, err := time.ParseDuration(s)
	switch _, shortErr := time.ParseDuration(shorter(s)); {
	case err != nil && shortErr == nil: // it has the form, and does not fit
		return tooLong()
	case err != nil || d < 0:
		return bad()
	case d > most-days:
		return tooLong()
	}
	return days + d, nil
}

// shorter leaves one digit of each number.
func shorter(s string) string {
	var b strings.Builder
	for i := range len(s) {
		if digit := func(i int) bool { return i >= 0 && s[i] >= '0' && s[i] <= '9' }; !digit(i) || !digit(i-1) {
			b.WriteByte(s[i])
		}
	}
	return b.String()
}

// isNumber tells decimal digits with at most one point.
func isNumber(s string) bool {
	digits, points := 0, 0
	for i := range len(s) {
		switch {
		case s[i] >= '0' && s[i] <= '9':
			digits++
		case s[i] == '.':
			points++
		default:
			return false
		}
	}
	return digits > 0 && points <= 1
}
