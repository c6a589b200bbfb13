package darwinjob

import (
	"errors"
	"fmt"
	"slices"
	"syscall"
	"testing"

	"github.com/sessionbox/sessionbox/pkg/internal/proc"
)

// pidSlot is one pid of a Mac, whose holder may change before any question.
type pidSlot struct {
	holders []uint64 // unique ids by question; 0 nobody
	execs   int      // how often it execs under our hands
	exact   bool
	version int32
	sent    []string // "signal to unique id"
}

func (s *pidSlot) now() uint64 { return s.holders[0] }

func (s *pidSlot) tick() {
	if len(s.holders) > 1 {
		s.holders = s.holders[1:]
	}
}

func (s *pidSlot) identify(int) (uint64, int32, bool, error) {
	defer s.tick()
	if s.now() == 0 {
		return 0, 0, false, proc.ErrGone
	}
	v := s.version
	if s.execs > 0 {
		s.execs--
		s.version++
	}
	return s.now(), v, false, nil
}

func (s *pidSlot) signalVersion(_ int, v int32, sig syscall.Signal) error {
	defer s.tick()
	switch {
	case !s.exact:
		return errNoExact
	case s.now() == 0 || s.now() != 7 || v != s.version:
		return syscall.ESRCH
	}
	s.sent = append(s.sent, fmt.Sprintf("%d to %d", sig, s.now()))
	return nil
}

func (s *pidSlot) kill(_ int, sig syscall.Signal) error {
	defer s.tick()
	if s.now() == 0 {
		return syscall.ESRCH
	}
	s.sent = append(s.sent, fmt.Sprintf("%d to %d", sig, s.now()))
	return nil
}

func TestExactly(t *testing.T) {
	const me, stranger = 7, 8
	kill, stop, cont := fmt.Sprint(int(syscall.SIGKILL)), fmt.Sprint(int(syscall.SIGSTOP)), fmt.Sprint(int(syscall.SIGCONT))
	for _, c := range []struct {
		name string
		slot pidSlot
		err  error
		sent []string
	}{
		{"there", pidSlot{exact: true, holders: []uint64{me}}, nil, []string{kill + " to 7"}},
		{"execs twice meanwhile", pidSlot{exact: true, holders: []uint64{me}, execs: 2}, nil, []string{kill + " to 7"}},
		{"never stops to exec", pidSlot{exact: true, holders: []uint64{me}, execs: 99}, syscall.EAGAIN, nil},
		{"gone", pidSlot{exact: true, holders: []uint64{0}}, proc.ErrGone, nil},
		{"replaced before", pidSlot{exact: true, holders: []uint64{stranger}}, proc.ErrReused, nil},
		{"replaced meanwhile", pidSlot{exact: true, holders: []uint64{me, stranger}}, proc.ErrReused, nil},
		{"old kernel", pidSlot{holders: []uint64{me}}, nil, []string{stop + " to 7", kill + " to 7"}},
		{"old kernel, replaced meanwhile", pidSlot{holders: []uint64{me, me, me, stranger}}, proc.ErrReused, []string{stop + " to 8", cont + " to 8"}},
		{"old kernel, ends meanwhile", pidSlot{holders: []uint64{me, me, me, 0}}, proc.ErrGone, nil},
	} {
		err := exactly(&c.slot, ID{PID: 100, Unique: me}, syscall.SIGKILL)
		if !errors.Is(err, c.err) || !slices.Equal(c.slot.sent, c.sent) {
			t.Errorf("%s: %v, sent %q; want %v, %q", c.name, err, c.slot.sent, c.err, c.sent)
		}
	}
	for _, id := range []ID{{PID: 1, Unique: 7}, {PID: 0, Unique: 7}, {PID: -1, Unique: 7}, {PID: 100}} {
		s := pidSlot{holders: []uint64{7}}
		if err := exactly(&s, id, syscall.SIGKILL); !errors.Is(err, proc.ErrForbidden) || len(s.sent) > 0 {
			t.Errorf("%+v: %v, sent %q; want it refused", id, err, s.sent)
		}
	}
}
