// Package bounds has tests that notice most mistakes.
package bounds

// In says whether x is at least lo and at most hi.
func In(x, lo, hi int) bool {
	return lo <= x && x <= hi
}

// Count counts down from n to 0. A mutant that counts up never ends.
func Count(n int) (steps int) {
	for n != 0 {
		n--
		steps++
	}
	return steps
}
