//go:build long

package rewrite

import "testing"

// The twins agree over axes of more than 65,536 elements too.
func TestLongTwins(t *testing.T) {
	for _, w := range twins(2, 65600) {
		t.Run(w.name, w.check)
	}
}
