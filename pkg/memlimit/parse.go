package memlimit

import (
	"fmt"
	"math/bits"
	"strconv"
	"strings"
)

type unit struct {
	letter string
	bytes  uint64
}

// units is a constant table, smallest first.
var units = [...]unit{{"K", 1 << 10}, {"M", 1 << 20}, {"G", 1 << 30}, {"T", 1 << 40}}

const (
	sizeForms  = `want bytes or a number with K, M, G or T (binary: 512M, 1.5G), a percentage (75%), or "max"`
	countForms = `want a whole number of at least 1, a percentage (50%), or "max"`
)

// ParseSize reads a size: bytes, a number with K, M, G or T (also as KB or KiB,
// in any case; all binary), a percentage above 0 and up to 100, or "max".
// Numbers may have decimals; what is left of a byte is dropped. A size of 0 is
// one: it forbids swap, for instance.
func ParseSize(text string) (Size, error) {
	s := strings.ToLower(strings.TrimSpace(text))
	if s == "max" {
		return Max(), nil
	}
	if share, ok := strings.CutSuffix(s, "%"); ok {
		return parsePercent(text, share, sizeForms)
	}
	num, scale := cutUnit(s)
	d, err := parseDecimal(text, num, sizeForms)
	if err != nil {
		return Size{}, err
	}
	n, ok := d.times(scale)
	if !ok || n > MaxBytes {
		return Size{}, fmt.Errorf(`%w: %q is more than any machine has; the most is %d bytes (for no limit: "max")`, ErrRange, text, uint64(MaxBytes))
	}
	return Bytes(n), nil
}

// ParseCount reads a limit on how many: a whole number of at least 1, a
// percentage, or "max".
func ParseCount(text string) (Size, error) {
	s := strings.ToLower(strings.TrimSpace(text))
	if s == "max" {
		return Max(), nil
	}
	if share, ok := strings.CutSuffix(s, "%"); ok {
		return parsePercent(text, share, countForms)
	}
	d, err := parseDecimal(text, s, countForms)
	if err != nil {
		return Size{}, err
	}
	n, ok := d.times(1)
	switch {
	case d.frac != 0:
		return Size{}, fmt.Errorf("%w: %q is not whole; %s", ErrSyntax, text, countForms)
	case !ok || n > MaxBytes:
		return Size{}, fmt.Errorf("%w: %q is too many; %s", ErrRange, text, countForms)
	case n == 0:
		return Size{}, fmt.Errorf("%w: %q allows nothing; %s", ErrRange, text, countForms)
	}
	return Bytes(n), nil
}

func parsePercent(text, share, forms string) (Size, error) {
	d, err := parseDecimal(text, share, forms)
	if err != nil {
		return Size{}, err
	}
	n, ok := d.times(percentUnit)
	switch {
	case !ok || n > 100*percentUnit || n == 100*percentUnit && d.frac != 0:
		return Size{}, fmt.Errorf("%w: %q is more than 100%%", ErrRange, text)
	case n == 0:
		return Size{}, fmt.Errorf("%w: %q leaves nothing; the share must be above 0%%", ErrRange, text)
	}
	return Size{kindPercent, n}, nil
}

// cutUnit takes the unit off the end of s (lower case).
func cutUnit(s string) (num string, scale uint64) {
	for _, u := range units {
		letter := strings.ToLower(u.letter)
		for _, suffix := range []string{letter + "ib", letter + "b", letter} {
			if num, ok := strings.CutSuffix(s, suffix); ok {
				return strings.TrimRight(num, " "), u.bytes
			}
		}
	}
	if num, ok := strings.CutSuffix(s, "b"); ok {
		return strings.TrimRight(num, " "), 1
	}
	return s, 1
}

// decimal is whole + frac / 10^digits, exactly; floats would round 64-bit sizes.
type decimal struct {
	whole, frac uint64
	digits      int
}

// maxFraction is how many decimals count; 10^18 fits a uint64. Further ones are
// below a byte for every unit there is.
const maxFraction = 18

func parseDecimal(text, num, forms string) (decimal, error) {
	bad := func(why string) (decimal, error) {
		return decimal{}, fmt.Errorf("%w: %q%s; %s", ErrSyntax, text, why, forms)
	}
	whole, frac, point := strings.Cut(num, ".")
	switch {
	case num == "":
		return bad(" has no number")
	case strings.HasPrefix(num, "-"):
		return decimal{}, fmt.Errorf("%w: %q is negative; %s", ErrRange, text, forms)
	case point && frac == "" || whole == "" || !isDigits(whole) || !isDigits(frac):
		return bad("")
	}
	d := decimal{digits: min(len(frac), maxFraction)}
	var err error
	if d.whole, err = strconv.ParseUint(whole, 10, 64); err != nil {
		return decimal{}, fmt.Errorf("%w: %q is too large; %s", ErrRange, text, forms)
	}
	if d.digits > 0 {
		d.frac, _ = strconv.ParseUint(frac[:d.digits], 10, 64) // 18 digits fit
	}
	return d, nil
}

func isDigits(s string) bool {
	for i := range len(s) {
		if s[i] < '0' || s[i] > '9' {
			return false
		}
	}
	return true
}

// times multiplies by scale and rounds down; not ok when it overflows.
func (d decimal) times(scale uint64) (n uint64, ok bool) {
	hi, n := bits.Mul64(d.whole, scale)
	if hi != 0 {
		return 0, false
	}
	pow := uint64(1)
	for range d.digits {
		pow *= 10
	}
	hi, lo := bits.Mul64(d.frac, scale) // frac < pow, so the quotient is < scale
	part, _ := bits.Div64(hi, lo, pow)
	n, carry := bits.Add64(n, part, 0)
	return n, carry == 0
}
