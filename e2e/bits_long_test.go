//go:build long

package e2e

import (
	"slices"
	"strings"
	"testing"

	"github.com/plx-run/plx/internal/test/testhosts"
)

// plx promises that a training ends with the same bits for any number of
// workers, on one host or four, in every architecture, with or without plx
// launch.
func TestSameBits(t *testing.T) {
	b := newBench(t, testhosts.Options{Hosts: 4})
	layouts := map[string][]string{
		"one worker":    {"h1"},
		"two on a host": {"h1: cpu*2"},
		"four hosts":    {"h1", "h2", "h3", "h4"},
		"unequal hosts": {"h1: cpu*3", "h2", "h3: cpu*2", "h4: ps"},
		"eight workers": {"h1: cpu*2", "h2: cpu*2", "h3: cpu*2", "h4: cpu*2"},
	}
	for _, program := range []struct {
		name  string
		flags []string
		skip  []string // names of the layouts that have more workers than the program has virtual workers
	}{
		{"mlp", mlpBits, []string{"eight workers"}},
		{"mlp", []string{"--niters=12", "--dim-in=96", "--dim-hidden=64", "--n-classes=8", "--train-size=480", "--batch-size=48",
			"--optimizer=momentum", "--clip-norm=0.5", "--virtual-workers=8"}, nil},
		{"cifar", []string{"--steps=3", "--batch-size=16", "--samples=64", "--virtual-workers=8"}, nil},
		{"lm", []string{"--steps=8", "--vocabulary=2000", "--width=16", "--hidden=16", "--length=4", "--samples=50", "--virtual-workers=8"}, nil},
		{"word2vec", []string{"--steps=8", "--virtual-workers=8"}, nil},
	} {
		path := testhosts.Binary(t, "github.com/plx-run/plx/examples/"+program.name)
		flags := append(slices.Clone(program.flags), "--digest", "--seed=3")
		want := b.digest(nil, path, flags...)
		for layout, lines := range layouts {
			if slices.Contains(program.skip, layout) {
				continue
			}
			for _, arch := range []string{"ps", "allreduce", "hybrid"} {
				t.Run(strings.Join([]string{program.name, layout, arch}, "/"), func(t *testing.T) {
					if got := b.in(t).digest(lines, path, append(slices.Clone(flags), "--arch="+arch)...); got != want {
						t.Errorf("got  %s\nwant %s", got, want)
					}
				})
			}
		}
		if other := b.digest(nil, path, append(slices.Clone(flags), "--seed=4")...); other == want {
			t.Errorf("%s: another seed gives the same weights", program.name)
		}
	}
	b.hostsGone(0)
}
