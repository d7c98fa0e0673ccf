//go:build long

package e2e

import (
	"path/filepath"
	"strings"
	"testing"

	"github.com/plx-run/plx/internal/testhosts"
)

// TestLookingHarmsNoTorch looks twenty times, by plx stacks, at jobs of PyTorch in twelve
// states, and lets --hang-timeout look too. Each ends as it would without, and each look shows
// where Python is.
func TestLookingHarmsNoTorch(t *testing.T) {
	needTorch(t)
	b := newBench(t, testhosts.Options{Hosts: 2}).withPlx()
	program, err := filepath.Abs("testdata/states.py")
	if err != nil {
		t.Fatal(err)
	}
	for _, state := range []string{"import", "store", "reduce", "loader", "sleep", "select", "foreign", "child", "lock", "file", "backward", "exit"} {
		t.Run(state, func(t *testing.T) {
			b := b.in(t)
			dir := b.shared()
			r := b.start("launch", "--hosts", b.ResourceFile("h1: cpu", "h2: cpu"), "--name", state, "--hang-timeout", "5s", "--on-hang", "report", program, state, dir)
			r.up("worker:0", "worker:1")
			seen := 0
			for range 20 {
				if stacks := b.want(0, "stacks", state).stdout; strings.Count(stacks, "states.py\", line ") >= 2 {
					seen++
				}
			}
			put(t, filepath.Join(dir, "go"), "", 0o644)
			if res := r.want(0); strings.Count(res.stdout, "done\n") != 2 {
				t.Errorf("stdout:\n%s\nstderr:\n%s", res.stdout, res.stderr)
			}
			if seen < 18 { // at its begin and its end a process may be between two states
				t.Errorf("%d of 20 looks show where both tasks are", seen)
			}
		})
	}
	b.hostsGone(0)
}
