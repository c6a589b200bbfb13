package memlimit

import "testing"

// The limit that binds is the one with the least room, not the lowest: what the
// neighbours use counts.
func TestBinding(t *testing.T) {
	const G = 1 << 30
	for name, tt := range map[string]struct {
		all     []Bound
		want    string
		percent float64
	}{
		"none":                {nil, "", 0},
		"the host alone":      {[]Bound{{BoundHost, 8 * G, 2 * G}}, BoundHost, 25},
		"its own":             {[]Bound{{BoundOwn, 2 * G, G}, {"x.slice", 4 * G, G}, {BoundHost, 8 * G, 2 * G}}, BoundOwn, 50},
		"a sibling fills it":  {[]Bound{{BoundOwn, 2 * G, G}, {"x.slice", 4 * G, 3*G + G/2}, {BoundHost, 8 * G, 4 * G}}, "x.slice", 87.5},
		"the host is full":    {[]Bound{{BoundOwn, 2 * G, G}, {BoundHost, 8 * G, 8*G - 1}}, BoundHost, 100 - 100.0/(8*G)},
		"over the limit":      {[]Bound{{BoundOwn, G, 2 * G}, {BoundHost, 8 * G, 8 * G}}, BoundOwn, 200},
		"a limit of nothing":  {[]Bound{{BoundOwn, 0, 0}, {BoundHost, 8 * G, G}}, BoundOwn, 100},
		"the innermost first": {[]Bound{{BoundOwn, G, 0}, {"x.slice", G, 0}}, BoundOwn, 0},
	} {
		got := Binding(tt.all)
		switch {
		case got == nil && tt.want != "":
			t.Errorf("%s: none; want %s", name, tt.want)
		case got != nil && (got.Of != tt.want || got.Percent() != tt.percent):
			t.Errorf("%s: %s, %v%%; want %s, %v%%", name, got.Of, got.Percent(), tt.want, tt.percent)
		}
	}
}

func TestAvg10(t *testing.T) {
	for text, want := range map[string]float64{
		"some avg10=0.00 avg60=0.00 avg300=0.00 total=0\nfull avg10=9.00 avg60=0.00 avg300=0.00 total=0\n": 0,
		"some avg10=12.34 avg60=1.00 avg300=0.00 total=123\n":                                              12.34,
		"full avg10=9.00 avg60=0.00 avg300=0.00 total=0\nsome avg10=100.00\n":                              100,
	} {
		if got, ok := Avg10([]byte(text)); !ok || got != want {
			t.Errorf("Avg10(%q) = %v, %v; want %v", text, got, ok, want)
		}
	}
	for _, bad := range []string{"", "some", "some avg10=", "some avg10=x avg60=1", "full avg10=1.00 avg60=1", "some avg10=-1 x", "some avg10=101 x", "some avg10=NaN x"} {
		if got, ok := Avg10([]byte(bad)); ok {
			t.Errorf("Avg10(%q) = %v; want none", bad, got)
		}
	}
}
