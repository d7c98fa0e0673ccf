package tree

import (
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
)

// Files that compression does not make smaller are sent uncompressed.
func TestCompressionIsChosenBySamples(t *testing.T) {
	noise := make([]byte, 3<<20)
	_, _ = rand.NewChaCha8([32]byte{}).Read(noise) // never fails
	for name, c := range map[string]struct {
		content string
		want    bool
	}{"text": {strings.Repeat("def train(model):\n", 200_000), true}, "noise": {string(noise), false}, "empty": {"", false}} {
		dir := t.TempDir()
		write(t, dir, map[string]string{"data": c.content})
		f := scan(t, dir)
		e, _ := f.Find("data")
		if got := f.shrinks(slices.Collect(e.Pieces())); got != c.want {
			t.Errorf("%s: compressed: %v", name, got)
		}
	}
}
