//go:build long

package e2e

import (
	"os"
	"path/filepath"
	"regexp"
	"testing"

	"github.com/plx-run/plx/internal/testhosts"
)

// A language model is trained on three hosts and then goes on by its name: on
// two of them, the third's disk being lost, in another architecture. Its
// weights are those of a process alone that nothing happened to. Then its
// checkpoints are damaged on all hosts: that is said, and is no fresh start.
func TestResume(t *testing.T) {
	t.Parallel()
	b := newBench(t, testhosts.Options{Hosts: 3})
	path := testhosts.Binary(t, "github.com/plx-run/plx/examples/lm")
	flags := []string{"--vocabulary=2000", "--width=16", "--hidden=16", "--length=4", "--batch-size=12", "--samples=50",
		"--virtual-workers=6", "--digest", "--seed=3"}
	want := b.digest(nil, path, append(flags, "--steps=50")...)
	flags = append(flags, "--ckpt-dir=saved")
	launch := func(code int, lines []string, more ...string) result {
		t.Helper()
		return b.want(code, append(append([]string{"launch", "-v", "--name=model", "--hosts", b.ResourceFile(lines...), path}, flags...), more...)...)
	}
	first := launch(0, []string{"h1: cpu*2", "h2", "h3"}, "--steps=31", "--ckpt-every-steps=10")
	said(t, first, "begins anew", "checkpoint of step 31", "0 failed")
	if !regexp.MustCompile(`[2-4] checkpoints of`).MatchString(first.stderr) { // one that is due while another is being written comes later
		t.Errorf("want one every 10 steps, and one behind the last:\n%s", first.stderr)
	}

	if err := os.RemoveAll(filepath.Join(b.Hosts[2].HomeDir, ".plx", "ckpt")); err != nil {
		t.Fatal(err)
	}
	second := launch(0, []string{"h1", "h2: cpu*2"}, "--steps=50", "--arch=ps", "--ckpt-every-secs=1")
	said(t, second, "going on after step 31", "checkpoint of step 50")
	if got := digestLine.FindString(second.stdout); got != want {
		t.Errorf("got  %s\nwant %s", got, want)
	}

	for _, h := range b.Hosts {
		b.truncate(filepath.Join(h.HomeDir, ".plx", "ckpt", "model", "saved", "*", "*.safetensors"))
	}
	third := launch(1, []string{"h1", "h2", "h3"}, "--steps=60")
	said(t, third, "000000000050-g0-", "h1", ".safetensors")
	if third.stdout != "" {
		t.Errorf("it trained:\n%s", third.stdout)
	}
	b.hostsGone(0)
}

// truncate cuts the last byte off files.
func (b *bench) truncate(pattern string) {
	b.t.Helper()
	files, err := filepath.Glob(pattern)
	if err != nil {
		b.t.Fatal(err)
	}
	for _, name := range files {
		info, err := os.Stat(name)
		if err == nil {
			err = os.Truncate(name, info.Size()-1)
		}
		if err != nil {
			b.t.Fatal(err)
		}
	}
}
