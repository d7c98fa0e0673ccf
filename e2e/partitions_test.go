//go:build long

package e2e

import (
	"slices"
	"strings"
	"testing"

	"github.com/plx-run/plx/internal/testhosts"
)

// While a language model trains, its tables are cut and moved between four
// hosts with slow links until the search has found the best number of
// partitions: the weights are those of one process alone, in a launch.
func TestSearchKeepsTheBits(t *testing.T) {
	b := newBench(t, testhosts.Options{Hosts: 4, Rate: "200mbit"})
	path := testhosts.Binary(t, "github.com/plx-run/plx/examples/lm")
	flags := []string{"--vocabulary=4000", "--width=32", "--hidden=32", "--length=5", "--batch-size=16", "--samples=100",
		"--steps=400", "--virtual-workers=8", "--digest", "--seed=3"}
	want := b.digest(nil, path, flags...)
	for layout, lines := range map[string][]string{
		"four hosts":    {"h1", "h2", "h3", "h4"},
		"unequal hosts": {"h1: cpu*3", "h2", "h3: cpu*2", "h4: ps"},
	} {
		t.Run(layout, func(t *testing.T) {
			b := b.in(t)
			b.env = []string{"PLX_LOG_LEVEL=debug"} // says every move: the number tried last may be the best
			res := b.want(0, append([]string{"launch", "--hosts", b.ResourceFile(lines...), path}, flags...)...)
			if got := digestLine.FindString(res.stdout); got != want {
				t.Errorf("got  %s\nwant %s", got, want)
			}
			for _, want := range []string{"choice P = ", "rows moved between step", "busiest link, measured over "} {
				if !strings.Contains(res.stderr, want) {
					t.Errorf("the chief does not say %q:\n%s", want, clip(res.stderr))
				}
			}
		})
	}
	// Cut otherwise and asked for otherwise, it is the same too.
	more := append(slices.Clone(flags), "--partitions=7", "--balance=bytes", "--prefetch=false")
	if got := b.digest([]string{"h1", "h2", "h3", "h4"}, path, more...); got != want {
		t.Errorf("%s: got  %s\nwant %s", strings.Join(more, " "), got, want)
	}
}
