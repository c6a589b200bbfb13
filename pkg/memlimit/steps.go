package memlimit

import (
	"fmt"
	"slices"
	"strings"
)

// Steps are those of the ladder that may be taken, beyond the warning, which always
// is. None is taken that was not asked for. The zero value only warns.
type Steps uint8

// The steps, from the mildest on.
const (
	MayHold      Steps = 1 << iota // new sessions wait
	MayHibernate                   // idle sessions are frozen and swapped out
	MayBrake                       // a session is slowed near its ceiling, for 10 s at most
	MayFreeze                      // a session stands still
	MayClose                       // a session is closed
)

func stepNames() []string { return []string{"hold", "hibernate", "brake", "freeze", "close"} }

// ParseSteps reads a list such as "hold,freeze"; "warn" and "" are none.
func ParseSteps(text string) (Steps, error) {
	var s Steps
	for word := range strings.SplitSeq(text, ",") {
		word = strings.TrimSpace(word)
		if word == "" || word == "warn" {
			continue
		}
		i := slices.Index(stepNames(), word)
		if i < 0 {
			return 0, fmt.Errorf("%q is no step of the memory ladder: want warn, %s", word, strings.Join(stepNames(), ", "))
		}
		s |= 1 << i
	}
	return s, nil
}

func (s Steps) String() string {
	words := []string{"warn"}
	for i, name := range stepNames() {
		if s&(1<<i) != 0 {
			words = append(words, name)
		}
	}
	return strings.Join(words, ",")
}

// MarshalText is String.
func (s Steps) MarshalText() ([]byte, error) { return []byte(s.String()), nil }

// UnmarshalText is ParseSteps.
func (s *Steps) UnmarshalText(text []byte) (err error) {
	*s, err = ParseSteps(string(text))
	return err
}
