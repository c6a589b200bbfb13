package guard

import (
	"fmt"
	"io"
	"maps"
	"slices"
	"strconv"
	"strings"
)

// The text format of Prometheus, version 0.0.4. The client library would be the
// obvious choice and is what the tests check this against; but Go links it into every
// verb, and each start of the program would take 1 ms longer (of 2.5; measured, half
// of it net/http's), for what a guard alone does, and seldom.

// family is one metric with all its samples.
type family struct {
	name, kind, help string
	samples          []sample
}

type sample struct {
	suffix string // _bucket, _sum, _count
	labels []label
	value  float64
}

type label struct{ name, value string }

func writeFamilies(w io.Writer, all []family) error {
	var b strings.Builder
	for _, f := range all {
		fmt.Fprintf(&b, "# HELP %s %s\n# TYPE %s %s\n", f.name, strings.NewReplacer(`\`, `\\`, "\n", `\n`).Replace(f.help), f.name, f.kind)
		for _, s := range f.samples {
			b.WriteString(f.name + s.suffix)
			for i, l := range s.labels {
				b.WriteByte("{,"[min(i, 1)])
				fmt.Fprintf(&b, `%s="%s"`, l.name, strings.NewReplacer(`\`, `\\`, "\n", `\n`, `"`, `\"`).Replace(strings.ToValidUTF8(l.value, "\ufffd")))
			}
			if len(s.labels) > 0 {
				b.WriteByte('}')
			}
			b.WriteString(" " + number(s.value) + "\n")
		}
	}
	_, err := io.WriteString(w, b.String())
	return err
}

func number(v float64) string { return strconv.FormatFloat(v, 'g', -1, 64) }

// counts are numbers by the values of their labels, joined by a byte that is in none.
type counts map[string]float64

const between = "\xff"

func (c counts) add(n float64, values ...string) { c[strings.Join(values, between)] += n }

// family makes the samples, in an order that stays.
func (c counts) family(name, kind, help string, labels ...string) family {
	f := family{name: name, kind: kind, help: help}
	for _, key := range slices.Sorted(maps.Keys(c)) {
		s := sample{value: c[key]}
		if len(labels) > 0 {
			for i, v := range strings.Split(key, between) {
				s.labels = append(s.labels, label{labels[i], v})
			}
		}
		f.samples = append(f.samples, s)
	}
	return f
}

// histogram counts values by how large they are.
type histogram struct {
	buckets []uint64 // as many as bounds
	sum     float64
	count   uint64
}

func (h *histogram) observe(bounds []float64, v float64) {
	if h.buckets == nil {
		h.buckets = make([]uint64, len(bounds))
	}
	for i, b := range bounds {
		if v <= b {
			h.buckets[i]++
		}
	}
	h.sum += v
	h.count++
}

func (h *histogram) samples(bounds []float64, labels ...label) []sample {
	var all []sample
	for i, b := range bounds {
		n := uint64(0)
		if h.buckets != nil {
			n = h.buckets[i]
		}
		all = append(all, sample{"_bucket", append(slices.Clone(labels), label{"le", number(b)}), float64(n)})
	}
	return append(all,
		sample{"_bucket", append(slices.Clone(labels), label{"le", "+Inf"}), float64(h.count)},
		sample{"_sum", labels, h.sum}, sample{"_count", labels, float64(h.count)})
}
