//go:build long

package rewrite

import "testing"

// Gorgonia's operations match a naive computation also along axes of more than
// 65,536 elements.
func TestLongTwins(t *testing.T) {
	for _, w := range twins(2, 65601) { // a multiple of 3, because one test slices with step 3
		t.Run(w.name, w.check)
	}
}
