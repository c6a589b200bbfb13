package score

import "slices"

// Median gives the middle and the worst of some figures of which more is better; of an
// even number the worse one of the two in the middle.
func Median(all []float64) (middle, worst float64) {
	if len(all) == 0 {
		return 0, 0
	}
	all = slices.Sorted(slices.Values(all))
	return all[(len(all)-1)/2], all[0]
}
