//go:build long

package e2e

import (
	"path/filepath"
	"strings"
	"testing"

	"github.com/plx-run/plx/internal/test/testhosts"
)

// TestLookingHarmsNoTorch inspects PyTorch jobs in twelve states, twenty times
// each by plx stacks and also by --hang-timeout. Each job must end as it would
// without inspection, and each inspection must show where Python is.
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
				if stacks := b.want(0, "stacks", "--full", state).stdout; strings.Count(stacks, "states.py\", line ") >= 2 {
					seen++
				}
			}
			put(t, filepath.Join(dir, "go"), "", 0o644)
			if res := r.want(0); strings.Count(res.stdout, "done\n") != 2 {
				t.Errorf("stdout:\n%s\nstderr:\n%s", res.stdout, res.stderr)
			}
			if seen < 18 { // a few inspections may miss, because the process is just starting or ending
				t.Errorf("%d of 20 looks show where both tasks are", seen)
			}
		})
	}
	b.hostsGone(0)
}

// TestLookingHarmsNoGo inspects a program of plx's trainer, and another Go
// program without code for plx, while they make steps. Both must make all
// steps.
func TestLookingHarmsNoGo(t *testing.T) {
	b := newBench(t, testhosts.Options{Hosts: 2}).withPlx()
	stuck := testhosts.Binary(t, "github.com/plx-run/plx/internal/test/testhosts/cmd/fake")
	for name, want := range map[string]string{"--arch=allreduce": "Goroutines:\n", "--plain": "process "} {
		t.Run(name, func(t *testing.T) {
			b := b.in(t)
			r := b.start("launch", "--hosts", b.ResourceFile("h1: cpu", "h2: cpu"), "--name", "steps", "--ps", "none", stuck, name, "--late", "-1", "--steps", "500", "sleeps")
			r.awaitLine("worker:0", "step 5")
			for i := range 20 {
				if stacks := b.want(0, "stacks", "--full", "steps").stdout; strings.Count(stacks, want) < 2 {
					t.Errorf("look %d shows\n%s", i, stacks)
				}
			}
			if printed := lines(r.want(0).stdout, "worker:0"); len(printed) != 500 || printed[499] != "step 499" {
				t.Errorf("%d lines, at last %q", len(printed), printed[max(0, len(printed)-1):])
			}
		})
	}
	b.hostsGone(0)
}
