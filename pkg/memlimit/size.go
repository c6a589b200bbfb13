package memlimit

import (
	"errors"
	"fmt"
	"math"
	"math/bits"
	"strconv"
	"strings"
)

// Infinity is the value of a limit that limits nothing, as systemd writes it.
const Infinity = math.MaxUint64

// MaxBytes is the largest number that a Size holds: what fits the signed fields
// of OCI resources.
const MaxBytes = math.MaxInt64

// Errors of ParseSize and ParseCount, to compare with errors.Is. The full error
// quotes the input and says what is allowed.
var (
	ErrSyntax = errors.New("not a size")
	ErrRange  = errors.New("size out of range")
)

// Size is an amount as a limit states it: bytes (or a count), a share of a
// total, or no limit ("max"). The zero value says nothing: the limit is not set.
// Sizes can be compared with ==.
type Size struct {
	kind sizeKind
	n    uint64 // bytes, or millionths of a percent
}

type sizeKind uint8

const (
	kindUnset sizeKind = iota
	kindBytes
	kindPercent
	kindMax
)

// percentUnit is 1 % in the unit of Size.n.
const percentUnit = 1e6

// Bytes is a Size of n bytes, or of n pieces for a count. Beyond MaxBytes it is
// Max, as for Infinity.
func Bytes(n uint64) Size {
	if n > MaxBytes {
		return Max()
	}
	return Size{kindBytes, n}
}

// Max is the Size that limits nothing.
func Max() Size { return Size{kind: kindMax} }

// IsSet tells whether the limit was stated at all.
func (s Size) IsSet() bool { return s.kind != kindUnset }

// IsMax tells whether the Size is "max".
func (s Size) IsMax() bool { return s.kind == kindMax }

// IsPercent tells whether the Size is a share, which Resolve makes bytes of.
func (s Size) IsPercent() bool { return s.kind == kindPercent }

// Value is the amount in bytes (or pieces) and Infinity for "max". It is not ok
// for a Size that is not set or is a share still.
func (s Size) Value() (n uint64, ok bool) {
	switch s.kind {
	case kindBytes:
		return s.n, true
	case kindMax:
		return Infinity, true
	default:
		return 0, false
	}
}

// Resolve turns a share of total into an amount, rounded down, and leaves other
// Sizes as they are. A share of an unknown total (0), or of one without end
// (Infinity: an unlimited parent), is an error.
func (s Size) Resolve(total uint64) (Size, error) {
	if s.kind != kindPercent {
		return s, nil
	}
	if total == 0 {
		return Size{}, fmt.Errorf("%v of an unknown total: state an amount instead", s)
	}
	if total > MaxBytes {
		return Size{}, fmt.Errorf("%v of what has no limit: state an amount instead", s)
	}
	hi, lo := bits.Mul64(total, s.n)
	n, _ := bits.Div64(hi, lo, 100*percentUnit) // s.n ≤ 100 %, so this is ≤ total
	return Bytes(n), nil
}

// String writes the Size so that ParseSize reads it again exactly: "max", "75%",
// "4G", "1234567". A Size that is not set is "".
func (s Size) String() string {
	switch s.kind {
	case kindBytes:
		for i := len(units) - 1; i >= 0 && s.n > 0; i-- {
			if u := units[i]; s.n%u.bytes == 0 {
				return strconv.FormatUint(s.n/u.bytes, 10) + u.letter
			}
		}
		return strconv.FormatUint(s.n, 10)
	case kindPercent:
		whole := strconv.FormatUint(s.n/percentUnit, 10)
		if frac := s.n % percentUnit; frac != 0 {
			whole += "." + strings.TrimRight(fmt.Sprintf("%06d", frac), "0")
		}
		return whole + "%"
	case kindMax:
		return "max"
	default:
		return ""
	}
}

// MarshalText is String.
func (s Size) MarshalText() ([]byte, error) { return []byte(s.String()), nil }

// UnmarshalText is ParseSize, with "" for a Size that is not set.
func (s *Size) UnmarshalText(text []byte) error {
	if len(text) == 0 {
		*s = Size{}
		return nil
	}
	v, err := ParseSize(string(text))
	if err == nil {
		*s = v
	}
	return err
}
