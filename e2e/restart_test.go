package e2e

import (
	"slices"
	"strings"
	"testing"

	"github.com/plx-run/plx/internal/test/testhosts"
)

// TestARestartGoesOnFromACheckpoint powers off one of three hosts during a
// training. The other two resume from the newest checkpoint, although only the
// lost host wrote part of it. They end with the same bits as an undisturbed
// training in one process.
func TestARestartGoesOnFromACheckpoint(t *testing.T) {
	t.Parallel()
	b := newBench(t, testhosts.Options{Hosts: 3}).withPlx()
	path := testhosts.Binary(t, "github.com/plx-run/plx/examples/lm")
	flags := []string{"--vocabulary=2000", "--width=16", "--hidden=16", "--length=4", "--batch-size=12", "--samples=50",
		"--digest", "--seed=3", "--steps=600"}
	want := b.digest(nil, path, append(slices.Clone(flags), "--virtual-workers=3")...)
	r := b.start(append(again(b.ResourceFile(), "-v", "--min-workers", "2", path), append(flags, "--ckpt-dir=.", "--ckpt-every-steps=50")...)...)
	r.saves(3)
	b.Hosts[2].PowerOff()
	res := r.want(0)
	b.says(res, "generation 1 starts on 2 hosts with 2 workers, without h3")
	said(t, res, "going on after step ", "checkpoint of step 600")
	if strings.Count(res.stderr, "begins anew") != 1 { // the first generation alone
		t.Errorf("the second generation began anew:\n%s", clip(res.stderr))
	}
	if got := digestLine.FindString(res.stdout); got != want {
		t.Errorf("got  %s\nwant %s", got, want)
	}
	b.gone(0, b.Hosts[0], b.Hosts[1])
}
