package score

import (
	"slices"
	"strings"

	"github.com/sessionbox/sessionbox/integration/membench/plan"
)

// Facts are what a run came to.
type Facts struct {
	Began, Ended bool
	Machine      string
	Fail         string // why it is none

	// Warn and Critical are when the right place was first told to be at that level or
	// beyond, False how many warnings were of others; nil is never. Said is the first
	// warning of any sort.
	Warn, Critical *float64
	False          int
	Said           string
	Named          int // sessions, in warnings of the host

	Acts    []Act
	Victims []string // what was done to: acted on, or killed; in that order
	Lost    []string // closed, or a process of it killed
	// Gone is when the first process was killed, of whatever sort.
	Gone    *float64
	Outside []string // what the kernel killed that is of no session to be touched
	Thrash  *float64

	Rate    float64 // the worst ratio; 0: not looked at
	Gap     float64
	Probes  int
	Silent  int // of them
	Stalls  map[string]float64
	Checks  map[string]bool
	Remarks []string // what checks have to say
}

// Act is one thing that the guard did.
type Act struct {
	At      float64 `json:"at"`
	Do      string  `json:"do"`
	Session string  `json:"session,omitempty"`
	Text    string  `json:"text,omitempty"`
}

// worst is the least ratio of a rate at which a run is still one of its scenario.
const worst = .8

// Read makes facts of the records of a run.
func Read(s *plan.Scenario, all []Record) Facts {
	f := Facts{Stalls: map[string]float64{}, Checks: map[string]bool{}}
	for i := range all {
		f.take(s, &all[i])
	}
	return f
}

func (f *Facts) take(s *plan.Scenario, r *Record) {
	switch r.What {
	case Ready:
		f.Machine = r.Text
	case Go:
		f.Began = true
	case Fail:
		if f.Fail == "" {
			f.Fail = r.Text
		}
	case Warned:
		f.warned(s, r)
	case Acted:
		f.acted(r)
	case Killed:
		f.gone(r)
		if !slices.Contains(s.Expect.Victims, r.Session) {
			f.Outside = append(f.Outside, r.Name+" of "+orNone(r.Session))
		}
	case Died:
		f.gone(r)
	case Thrash:
		f.Thrash = first(f.Thrash, r.At)
	case Rate:
		if f.Rate == 0 || r.Ratio < f.Rate {
			f.Rate = r.Ratio
		}
	case Probe:
		f.Silent++
	case Stalled:
		f.Stalls[r.Session] = max(f.Stalls[r.Session], r.Seconds)
	case Check:
		if old, known := f.Checks[r.Name]; known {
			r.OK = r.OK && old // said twice, it must hold twice
		}
		f.Checks[r.Name] = r.OK
		if r.Text != "" {
			f.Remarks = append(f.Remarks, r.Name+": "+r.Text)
		}
	case Gap:
		f.Gap = max(f.Gap, r.Seconds)
	case End:
		f.Ended, f.Gap, f.Probes = true, max(f.Gap, r.Seconds), r.N
	}
}

func orNone(session string) string {
	if session == "" {
		return "no session"
	}
	return session
}

func first(have *float64, at float64) *float64 {
	if have != nil && *have <= at {
		return have
	}
	return &at
}

// warned counts what people are told: that a place has become short.
func (f *Facts) warned(s *plan.Scenario, r *Record) {
	if r.Level != "warn" && r.Level != "critical" && r.Level != "emergency" || r.Change == "eased" || r.Change == "cleared" {
		return
	}
	if f.Said == "" {
		f.Said = r.Text
	}
	if s.Expect.Blame == "" || !strings.HasPrefix(r.Name, s.Expect.Blame) {
		if r.Change == "raised" {
			f.False++
		}
		return
	}
	f.Warn = first(f.Warn, r.At)
	if r.Level != "warn" {
		f.Critical = first(f.Critical, r.At)
	}
	f.Named = max(f.Named, r.N)
}

func (f *Facts) acted(r *Record) {
	f.Acts = append(f.Acts, Act{At: r.At, Do: r.Do, Session: r.Session, Text: r.Text})
	if !r.OK || r.Session == "" || r.Do == "thaw" || r.Do == "arm" || r.Do == "restore" || r.Do == "helpless" {
		return
	}
	f.Victims = add(f.Victims, r.Session)
	if r.Do == "close" {
		f.Lost = add(f.Lost, r.Session)
	}
}

func (f *Facts) gone(r *Record) {
	f.Gone = first(f.Gone, r.At)
	if r.Session != "" {
		f.Victims, f.Lost = add(f.Victims, r.Session), add(f.Lost, r.Session)
	}
}

func add(all []string, one string) []string {
	if slices.Contains(all, one) {
		return all
	}
	return append(all, one)
}
