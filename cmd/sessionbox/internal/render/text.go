package render

import (
	"fmt"
	"path/filepath"
	"strconv"
	"strings"
	"time"
	"unicode"
)

// Age writes a time span as short as it is understood: 0s, 42s, 3m, 2h, 5d.
func Age(d time.Duration) string {
	switch {
	case d < 0:
		return "0s"
	case d < time.Minute:
		return fmt.Sprintf("%ds", int(d.Seconds()))
	case d < time.Hour:
		return fmt.Sprintf("%dm", int(d.Minutes()))
	case d < 48*time.Hour:
		return fmt.Sprintf("%dh", int(d.Hours()))
	default:
		return fmt.Sprintf("%dd", int(d.Hours()/24))
	}
}

func ageSeconds(s float64) string { return Age(time.Duration(s * float64(time.Second))) }

// Took writes how long something took: 0.1s, 12s, 3m.
func Took(seconds float64) string {
	switch {
	case seconds < 0.05:
		return fmt.Sprintf("%dms", max(1, int(seconds*1000)))
	case seconds < 9.95:
		return fmt.Sprintf("%.1fs", seconds)
	}
	return ageSeconds(seconds)
}

// count writes "1 process", "3 processes".
func count(n int, one, many string) string {
	if n == 1 {
		return "1 " + one
	}
	return strconv.Itoa(n) + " " + many
}

// Command writes a command line as one would type it. Short gives the program
// without its directory.
func Command(argv []string, short bool) string {
	words := make([]string, len(argv))
	for i, w := range argv {
		if i == 0 && short && strings.HasPrefix(w, "/") {
			w = filepath.Base(w)
		}
		words[i] = quote(w)
	}
	return strings.Join(words, " ")
}

// quote quotes a word where a shell would need it, and makes it harmless.
func quote(w string) string {
	if w == "" {
		return "''"
	}
	safe := Clean(w)
	if strings.ContainsAny(w, " \t\n\"'`$&|;<>()*?!#~\\") && (!strings.HasPrefix(w, "[") || !strings.HasSuffix(w, "]")) {
		if !strings.Contains(safe, "'") {
			return "'" + safe + "'"
		}
		return `"` + safe + `"`
	}
	return safe
}

// Clean makes text from elsewhere harmless: what cannot be printed is shown as
// an escape.
func Clean(s string) string {
	if strings.IndexFunc(s, func(r rune) bool { return !printable(r) }) < 0 {
		return s
	}
	var b strings.Builder
	for _, r := range s {
		if printable(r) {
			b.WriteRune(r)
			continue
		}
		q := strconv.QuoteRune(r)
		b.WriteString(q[1 : len(q)-1])
	}
	return b.String()
}

func printable(r rune) bool { return r != unicode.ReplacementChar && unicode.IsPrint(r) }

// width is how many columns a text takes.
func width(s string) int {
	n := 0
	for _, r := range s {
		n += runeWidth(r)
	}
	return n
}

// wide are the ranges of characters that take two columns.
var wide = [...][2]rune{
	{0x1100, 0x115f}, {0x2e80, 0xa4cf}, {0xac00, 0xd7a3}, {0xf900, 0xfaff}, {0xfe30, 0xfe6f},
	{0xff00, 0xff60}, {0xffe0, 0xffe6}, {0x1f300, 0x1faff}, {0x20000, 0x3fffd},
}

func runeWidth(r rune) int {
	if r < 0x300 {
		return 1
	}
	if unicode.Is(unicode.Mn, r) || unicode.Is(unicode.Me, r) {
		return 0
	}
	for _, w := range wide {
		if r >= w[0] && r <= w[1] {
			return 2
		}
	}
	return 1
}

// fit cuts a text to n columns.
func fit(s string, n int) string {
	if n <= 0 || width(s) <= n {
		return s
	}
	used := 0
	for i, r := range s {
		w := runeWidth(r)
		if used+w > n-1 {
			return s[:i] + "…"
		}
		used += w
	}
	return s
}
