package proc

import (
	"errors"
	"testing"
)

func TestParseStat(t *testing.T) {
	const tail = " S 1 42 42 34816 -1 4194304 100 0 0 0 7 8 0 0 20 0 3 0 12345 1000 55 18446744073709551615 1 1 0 0 0 0 0 0 0 0 0 0 17 1 0 0 0 0 0"
	for _, name := range []string{"bash", "a b", "x) S 1 2", "((", ")", ""} {
		s, err := ParseStat([]byte("42 (" + name + ")" + tail))
		want := Stat{PID: 42, Comm: name, State: 'S', PPID: 1, PGID: 42, SID: 42, TTY: 34816, Foreground: -1, UserTicks: 7, SystemTicks: 8, Threads: 3, Start: 12345, RSSPages: 55}
		if err != nil || s != want {
			t.Errorf("ParseStat of %q = %+v, %v; want %+v", name, s, err, want)
		}
	}
	if s, err := ParseStat([]byte("2 (kthreadd) S 0 0 0 0 -1 2129984 0 0 0 0 0 0 0 0 20 0 1 0 3 0 0 1 0")); err != nil || !s.Kernel {
		t.Errorf("kthreadd: %+v, %v; want a thread of the kernel", s, err)
	}
	for _, bad := range []string{"", "42", "42 (x", "x (y) S 1", "42 (x) S 1 2 3", "42 (x) SS" + tail[2:], "42 (x) S a" + tail[4:]} {
		if s, err := ParseStat([]byte(bad)); err == nil {
			t.Errorf("ParseStat(%q) = %+v, want an error", bad, s)
		}
	}
}

func FuzzParseStat(f *testing.F) {
	f.Add([]byte("42 (bash) S 1 42 42 34816 -1 4194304 100 0 0 0 7 8 0 0 20 0 3 0 12345 1000 55 1 1 1"))
	f.Fuzz(func(t *testing.T, b []byte) {
		ParseStat(b) // must not panic, whatever the kernel of tomorrow says
	})
}

// The numbers that kill(2) takes for many are refused before any system call.
func TestForbiddenPIDs(t *testing.T) {
	for _, pid := range []int{1, 0, -1, -2, -1 << 31, 1 << 31, 1<<22 + 1} {
		if err := CheckPID(pid); !errors.Is(err, ErrForbidden) {
			t.Errorf("CheckPID(%d) = %v, want ErrForbidden", pid, err)
		}
	}
	for _, pid := range []int{2, 4711, 1 << 22} {
		if err := CheckPID(pid); err != nil {
			t.Errorf("CheckPID(%d) = %v", pid, err)
		}
	}
}
