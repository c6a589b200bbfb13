package memlimit

import (
	"encoding/json"
	"errors"
	"math"
	"math/big"
	"strings"
	"testing"

	"pgregory.net/rapid"
)

func TestParseSize(t *testing.T) {
	const kib, mib, gib, tib = 1 << 10, 1 << 20, 1 << 30, 1 << 40
	percent := func(millionths uint64) Size { return Size{kindPercent, millionths} }
	for in, want := range map[string]Size{
		"0": Bytes(0), "1": Bytes(1), "4096": Bytes(4096), "512B": Bytes(512), "512b": Bytes(512),
		"1K": Bytes(kib), "1k": Bytes(kib), "1KB": Bytes(kib), "1KiB": Bytes(kib), "1kib": Bytes(kib),
		"512M": Bytes(512 * mib), "512MB": Bytes(512 * mib), "4G": Bytes(4 * gib), "4 GiB": Bytes(4 * gib),
		" 2T ": Bytes(2 * tib), "1.5G": Bytes(3 * gib / 2), "0.5K": Bytes(512), "1.0": Bytes(1), "0.9": Bytes(0),
		"0.1G": Bytes(gib / 10), "1.0000000000000000001K": Bytes(kib), "007": Bytes(7),
		"9007199254740993":    Bytes(9007199254740993), // not a float64
		"8388607.999999T":     Bytes(9223372036853676296),
		"9223372036854775807": Bytes(math.MaxInt64),
		"max":                 Max(), "MAX": Max(), " max ": Max(),
		"75%": percent(75e6), "100%": percent(100e6), "100.0%": percent(100e6), "12.5%": percent(12.5e6), "0.000001%": percent(1),
	} {
		if got, err := ParseSize(in); err != nil || got != want {
			t.Errorf("ParseSize(%q) = %+v, %v; want %+v", in, got, err, want)
		}
	}
	for in, want := range map[string]error{
		"": ErrSyntax, " ": ErrSyntax, "G": ErrSyntax, "%": ErrSyntax, "B": ErrSyntax, "x": ErrSyntax, "4X": ErrSyntax, "4GG": ErrSyntax,
		"NaN": ErrSyntax, "Inf": ErrSyntax, "infinity": ErrSyntax, "1e9": ErrSyntax, "0x10": ErrSyntax, "1_000": ErrSyntax, "1,5G": ErrSyntax,
		"+1": ErrSyntax, "1.G": ErrSyntax, ".5G": ErrSyntax, "1.2.3": ErrSyntax, "1 2": ErrSyntax, "NaN%": ErrSyntax, "٣": ErrSyntax,
		"-1": ErrRange, "-1G": ErrRange, "-5%": ErrRange, "-x": ErrRange,
		"8388608T": ErrRange, "9223372036854775808": ErrRange, "18446744073709551616": ErrRange, "99999999999999999999G": ErrRange,
		"0%": ErrRange, "0.0000001%": ErrRange, "101%": ErrRange, "100.0000000000001%": ErrRange, "99999999999999999%": ErrRange,
	} {
		got, err := ParseSize(in)
		if !errors.Is(err, want) || got != (Size{}) {
			t.Errorf("ParseSize(%q) = %v, %v; want %v", in, got, err, want)
			continue
		}
		if !strings.Contains(err.Error(), `"`+in+`"`) {
			t.Errorf("ParseSize(%q): %v does not quote the input", in, err)
		}
	}
	if _, err := ParseSize("lots"); !strings.Contains(err.Error(), "512M") || !strings.Contains(err.Error(), "75%") || !strings.Contains(err.Error(), "max") {
		t.Errorf("%v does not say what is allowed", err)
	}
}

func TestParseCount(t *testing.T) {
	for in, want := range map[string]Size{"1": Bytes(1), "4096": Bytes(4096), "max": Max(), "50%": {kindPercent, 50e6}, "10.0": Bytes(10)} {
		if got, err := ParseCount(in); err != nil || got != want {
			t.Errorf("ParseCount(%q) = %v, %v", in, got, err)
		}
	}
	for in, want := range map[string]error{"": ErrSyntax, "0": ErrRange, "-1": ErrRange, "1.5": ErrSyntax, "4K": ErrSyntax, "0%": ErrRange, "9223372036854775808": ErrRange} {
		if got, err := ParseCount(in); !errors.Is(err, want) {
			t.Errorf("ParseCount(%q) = %v, %v; want %v", in, got, err, want)
		}
	}
}

func anySize() *rapid.Generator[Size] {
	return rapid.OneOf(
		rapid.Map(rapid.Uint64Max(MaxBytes), Bytes),
		rapid.Map(rapid.Uint64Range(1, 100*percentUnit), func(n uint64) Size { return Size{kindPercent, n} }),
		rapid.Just(Max()),
	)
}

func TestSizeTextRoundTrip(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		want := anySize().Draw(t, "size")
		got, err := ParseSize(want.String())
		if err != nil || got != want {
			t.Fatalf("ParseSize(%q) = %+v, %v; want %+v", want, got, err, want)
		}
		data, err := json.Marshal(want)
		if err != nil {
			t.Fatal(err)
		}
		var back Size
		if err := json.Unmarshal(data, &back); err != nil || back != want {
			t.Fatalf("%s = %+v, %v", data, back, err)
		}
	})
	var unset Size
	if err := unset.UnmarshalText([]byte("x")); err == nil || unset.IsSet() {
		t.Errorf("%v, %v", unset, err)
	}
	if err := unset.UnmarshalText(nil); err != nil || unset.IsSet() || unset.String() != "" {
		t.Errorf("%v, %v", unset, err)
	}
	for want, s := range map[string]Size{"1536M": Bytes(3 << 29), "4G": Bytes(4 << 30), "0": Bytes(0), "1025": Bytes(1025), "12.5%": {kindPercent, 12.5e6}, "2048T": Bytes(1 << 51)} {
		if s.String() != want {
			t.Errorf("%q, want %q", s, want)
		}
	}
}

func TestResolve(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		share := Size{kindPercent, rapid.Uint64Range(1, 100*percentUnit).Draw(t, "share")}
		total := rapid.Uint64Range(1, MaxBytes).Draw(t, "total")
		got, err := share.Resolve(total)
		if err != nil {
			t.Fatal(err)
		}
		want := new(big.Int).Mul(new(big.Int).SetUint64(total), new(big.Int).SetUint64(share.n))
		want.Div(want, big.NewInt(100*percentUnit))
		if n, ok := got.Value(); !ok || n != want.Uint64() {
			t.Fatalf("%v of %d = %d, want %v", share, total, n, want)
		}
	})
	if got, err := Bytes(7).Resolve(0); err != nil || got != Bytes(7) {
		t.Errorf("%v, %v", got, err)
	}
	if _, err := (Size{kindPercent, 1}).Resolve(0); err == nil {
		t.Error("a share of nothing known was resolved")
	}
	if n, ok := Max().Value(); !ok || n != Infinity {
		t.Errorf("%d, %v", n, ok)
	}
	if _, ok := (Size{}).Value(); ok {
		t.Error("a Size not set has a value")
	}
	if Bytes(Infinity) != Max() || Bytes(MaxBytes+1) != Max() {
		t.Error("more than MaxBytes is not max")
	}
}

func FuzzParseSize(f *testing.F) {
	for _, s := range []string{"4G", "1.5GiB", "75%", "max", "-1", "NaN", "9223372036854775807", "0.1"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, in string) {
		s, err := ParseSize(in)
		if err != nil {
			if s.IsSet() || !errors.Is(err, ErrSyntax) && !errors.Is(err, ErrRange) {
				t.Fatalf("%v, %v", s, err)
			}
			return
		}
		if again, err := ParseSize(s.String()); err != nil || again != s {
			t.Fatalf("ParseSize(%q) = %v, but %q = %v, %v", in, s, s.String(), again, err)
		}
	})
}

func TestFormatBytes(t *testing.T) {
	for n, want := range map[uint64]string{
		0: "0B", 1: "1B", 999: "999B", 1023: "1023B", 1024: "1K", 1025: "1K", 1536: "1.5K", 10240: "10K", 10291: "10K", 10342: "10.1K",
		102297: "99.9K", 102400: "100K", 1023 << 10: "1023K", 1<<20 - 1: "1M", 1<<20 - 600: "1023K", 1 << 20: "1M",
		1288490189: "1.2G", 4 << 30: "4G", 3400 << 20: "3.32G", 1023 << 20: "1023M", 87<<20 + 1<<19: "87.5M",
		1 << 40: "1T", 5000 << 40: "5000T", math.MaxInt64: "8388608T", Infinity: "max",
	} {
		if got := FormatBytes(n); got != want {
			t.Errorf("FormatBytes(%d) = %s, want %s", n, got, want)
		}
	}
}
