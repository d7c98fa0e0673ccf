//go:build long

package e2e

import (
	"slices"
	"strings"
	"testing"

	"github.com/plx-run/plx/internal/testhosts"
)

// TestLanguageModelLosesAProcessAndAHost has a language model on three hosts lose
// a process, and then a whole host, whose loss changes the numbers of the tasks on
// the next. The job ends with the bits of one process that nothing happened to.
func TestLanguageModelLosesAProcessAndAHost(t *testing.T) {
	t.Parallel()
	b := newBench(t, testhosts.Options{Hosts: 3})
	path := testhosts.Binary(t, "github.com/plx-run/plx/examples/lm")
	flags := []string{"--vocabulary=2000", "--width=16", "--hidden=16", "--length=4", "--batch-size=12", "--samples=50",
		"--digest", "--seed=3", "--steps=3000"}
	want := b.digest(nil, path, append(slices.Clone(flags), "--virtual-workers=3")...)
	launch := []string{"launch", "-v", "--hosts", b.ResourceFile(), "--lease", lease.String(), "--max-restarts", "2", "--restart-backoff", "200ms", "--min-workers", "2", path}
	r := b.start(append(launch, append(flags, "--ckpt-dir=.", "--ckpt-every-steps=100")...)...)
	r.saves(2)
	for _, p := range b.processes(b.Hosts[1]) {
		if slices.Contains(p.Environ, "PLX_ROLE=worker") {
			b.kill(p)
		}
	}
	r.await(r.stderr, "going on after step ")
	r.await(r.stderr, "generation 1 resumes after step ")
	b.Hosts[1].PowerOff()
	r.await(r.stderr, "generation 2 starts on 2 hosts with 2 workers, without h2")
	r.until("all train again", func() bool { return strings.Count(r.stderr.String(), "going on after step ") == 2 })
	res := r.want(0)
	b.says(res, "done, after 2 restarts")
	if got := digestLine.FindString(res.stdout); got != want {
		t.Errorf("got  %s\nwant %s", got, want)
	}
	b.gone(0, b.Hosts[0], b.Hosts[2])
}
