//go:build long

package rewrite

import "testing"

// The twins agree over axes of more than 65,536 elements too.
func TestLongTwins(t *testing.T) {
	for _, w := range twins(2, 65601) { // a slice by steps of 3 needs a multiple
		t.Run(w.name, w.check)
	}
}
