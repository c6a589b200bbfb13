package main

import (
	"fmt"
	"slices"
	"time"
)

// row is one budget.
type row struct {
	what, against string
	limit         float64 // allowed ratio, 0 for a row that only informs
	n             int
	a, b          func() (time.Duration, error)
}

// result is what a row measured.
type result struct {
	row
	as, bs []time.Duration
	ratios []float64
}

// measure runs both sides in turn, one pair more than counted to warm up.
func (r row) measure() (result, error) {
	res := result{row: r}
	for i := range r.n + 1 {
		a, err := r.a()
		if err != nil {
			return res, fmt.Errorf("%s: %w", r.what, err)
		}
		b, err := r.b()
		if err != nil {
			return res, fmt.Errorf("%s: %w", r.against, err)
		}
		if i > 0 {
			res.as, res.bs = append(res.as, a), append(res.bs, b)
			res.ratios = append(res.ratios, float64(a)/float64(b))
		}
	}
	return res, nil
}

func (r result) String() string {
	verdict := ""
	ratio := quantile(r.ratios, 0.5)
	switch {
	case r.limit == 0:
	case ratio <= r.limit:
		verdict = fmt.Sprintf("  budget %.2f: met", r.limit)
	default:
		verdict = fmt.Sprintf("  budget %.2f: MISSED", r.limit)
	}
	return fmt.Sprintf("%-44s %8s  against %-34s %8s  ratio %.2f (%.2f to %.2f, %d pairs)%s",
		r.what, ms(quantile(r.as, 0.5)), r.against, ms(quantile(r.bs, 0.5)), ratio,
		quantile(r.ratios, 0.1), quantile(r.ratios, 0.9), r.n, verdict)
}

func (r result) missed() bool { return r.limit > 0 && quantile(r.ratios, 0.5) > r.limit }

func quantile[T ~int64 | ~float64](v []T, q float64) T {
	s := slices.Sorted(slices.Values(v))
	return s[int(q*float64(len(s)-1)+0.5)]
}

func ms(d time.Duration) string { return fmt.Sprintf("%.2fms", float64(d)/float64(time.Millisecond)) }
