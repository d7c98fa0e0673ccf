//go:build long

package e2e

import (
	"math/rand/v2"
	"path/filepath"
	"strings"
	"testing"

	"github.com/plx-run/plx/internal/test/testhosts"
)

// word2vec trains on two hosts with servers, on a text that --copy has sent.
// Words of the same topic must become neighbours.
func TestWord2vecFromFile(t *testing.T) {
	t.Parallel()
	b := newBench(t, testhosts.Options{Hosts: 2}).withPlx()
	pets, skies := []string{"cat", "dog", "fur", "paw", "tail", "pet"}, []string{"sun", "moon", "cloud", "rain", "star", "sky"}
	drawn := rand.New(rand.NewPCG(1, 2))
	var text strings.Builder
	for i := range 600 {
		words := pets
		if i%2 == 1 {
			words = skies
		}
		for range 12 {
			text.WriteString(words[drawn.IntN(len(words))] + " ")
		}
		text.WriteString("\n")
	}
	file := filepath.Join(t.TempDir(), "text.txt")
	put(t, file, text.String(), 0o644)
	out := b.want(0, "launch", "--hosts", b.ResourceFile("h1", "h2"), "--copy", file,
		testhosts.Binary(t, "github.com/plx-run/plx/examples/word2vec"), "--text=text.txt", "--near=cat,sun", "--window=3", "--steps=400").stdout
	for near, kind := range map[string][]string{"near cat | ": pets, "near sun | ": skies} {
		_, found, _ := strings.Cut(out, near)
		line, _, _ := strings.Cut(found, "\n")
		for _, word := range kind {
			if !strings.Contains(near, word) && !strings.Contains(line, word) {
				t.Errorf("%s%s: not %s", near, line, word)
			}
		}
	}
	b.hostsGone(0)
}
