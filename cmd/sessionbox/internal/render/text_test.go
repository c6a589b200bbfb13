package render

import (
	"strings"
	"testing"
	"time"
)

func TestAge(t *testing.T) {
	for d, want := range map[time.Duration]string{
		-time.Second: "0s", 0: "0s", 59 * time.Second: "59s", time.Minute: "1m", 59 * time.Minute: "59m", 60 * time.Minute: "1h",
		47*time.Hour + 59*time.Minute: "47h", 48 * time.Hour: "2d", 30 * 24 * time.Hour: "30d",
	} {
		if got := Age(d); got != want {
			t.Errorf("Age(%v) = %q; want %q", d, got, want)
		}
	}
}

func TestTook(t *testing.T) {
	for s, want := range map[float64]string{0: "1ms", 0.004: "4ms", 0.049: "49ms", 0.12: "0.1s", 9.94: "9.9s", 9.96: "9s", 61: "1m"} {
		if got := Took(s); got != want {
			t.Errorf("Took(%v) = %q; want %q", s, got, want)
		}
	}
}

func TestCommand(t *testing.T) {
	for _, tt := range []struct {
		argv  []string
		short bool
		want  string
	}{
		{[]string{"/usr/bin/node", "a b"}, true, "node 'a b'"},
		{[]string{"/usr/bin/node", "/x"}, false, "/usr/bin/node /x"},
		{[]string{"sh", "-c", "echo 'x'"}, true, `sh -c "echo 'x'"`},
		{[]string{"x", ""}, true, "x ''"},
		{[]string{"[kworker/0:1]"}, true, "[kworker/0:1]"},
		{[]string{"evil\x1b[2J\x07", "tab\there\r\n"}, true, `evil\x1b[2J\a 'tab\there\r\n'`},
		{[]string{"\xff\xfe"}, true, `��`},
	} {
		got := Command(tt.argv, tt.short)
		if tt.argv[0] == "\xff\xfe" {
			if strings.Contains(got, "\xff") {
				t.Errorf("Command(%q) = %q has bytes that are no text", tt.argv, got)
			}
			continue
		}
		if got != tt.want {
			t.Errorf("Command(%q) = %q; want %q", tt.argv, got, tt.want)
		}
	}
}

func TestFit(t *testing.T) {
	for _, tt := range []struct {
		s    string
		n    int
		want string
	}{
		{"hello", 5, "hello"}, {"hello", 4, "hel…"}, {"hello", 0, "hello"}, {"日本語", 6, "日本語"}, {"日本語", 5, "日本…"}, {"日本語", 4, "日…"}, {"é", 1, "é"},
	} {
		if got := fit(tt.s, tt.n); got != tt.want {
			t.Errorf("fit(%q, %d) = %q; want %q", tt.s, tt.n, got, tt.want)
		}
	}
}

// No text from a process can do anything to a terminal, however it is made.
func FuzzClean(f *testing.F) {
	f.Add("\x1b]0;title\x07")
	f.Add("\u202eabc\u0085")
	f.Fuzz(func(t *testing.T, s string) {
		for _, r := range Command([]string{s, s}, true) {
			if r < 0x20 || r >= 0x7f && r < 0xa0 || r == 0x202e {
				t.Fatalf("%q lets %U through", s, r)
			}
		}
	})
}
