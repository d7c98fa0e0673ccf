//go:build long

package e2e

import (
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/plx-run/plx/internal/test/patience"
	"github.com/plx-run/plx/internal/test/testhosts"
)

// Every example runs on real hosts, and only the chief (worker 0) prints
// output. TestSameBits runs mlp, cifar, lm and word2vec.
func TestExamplesOnHosts(t *testing.T) {
	b := newBench(t, testhosts.Options{Hosts: 3})
	file := b.ResourceFile("h1: cpu*2", "h2", "h3")
	for _, c := range []struct {
		name  string
		flags []string
		want  string
	}{
		{"linear", []string{"--steps=21"}, "step 20 | loss "},
		{"matmul", []string{"--size=101"}, "by reduction | 4 workers | "},
		{"mnist", []string{"--steps=51", "--samples=960"}, "step 50 | loss "},
		{"mnist", []string{"--steps=51", "--samples=960", "--sync=async"}, "step 50 | loss "},
		{"mnist", []string{"--steps=51", "--samples=960", "--sync=group:2"}, "step 50 | loss "},
		{"resnet", []string{"--synthetic", "--depth=18", "--size=32", "--batch-size=8", "--samples=48", "--steps=2", "--report-every=1"}, "evaluation of 8 pictures | top-1 "},
	} {
		t.Run(c.name+" "+strings.Join(c.flags, " "), func(t *testing.T) {
			b := b.in(t)
			program := testhosts.Binary(t, "github.com/plx-run/plx/examples/"+c.name)
			res := b.want(0, append([]string{"launch", "--hosts", file, program}, c.flags...)...)
			if !strings.Contains(res.stdout, c.want) {
				t.Errorf("no %q in\n%s", c.want, res.stdout)
			}
			for line := range strings.Lines(res.stdout) {
				if !strings.HasPrefix(line, "worker:0 h1 | ") {
					t.Errorf("not the chief's: %s", line)
				}
			}
			b.hostsGone(0)
		})
	}
}

// A server that holds no variables ends with status 0 while the workers
// continue.
func TestIdleServersEnd(t *testing.T) {
	b := newBench(t, testhosts.Options{Hosts: 2})
	mlp := testhosts.Binary(t, "github.com/plx-run/plx/examples/mlp")
	r := b.start("launch", "--hosts", b.ResourceFile("h1", "h2"), mlp, "--niters=100000", "--dim-in=64", "--n-classes=4", "--arch=allreduce")
	r.await(r.stdout, "step 100 ")
	for _, h := range b.Hosts {
		for deadline := time.Now().Add(patience.Limit); b.tasks(h, "ps") > 0; time.Sleep(10 * time.Millisecond) {
			if time.Now().After(deadline) {
				t.Fatalf("host %s: a server runs", h.Name)
			}
		}
		if b.tasks(h, "worker") == 0 {
			t.Errorf("host %s: no worker runs", h.Name)
		}
	}
	r.signal(syscall.SIGINT)
	r.want(130)
	b.hostsGone(0)
}

// tasks returns the number of processes on host h that run a task of the given
// role.
func (b *bench) tasks(h *testhosts.Host, role string) (n int) {
	b.t.Helper()
	for _, p := range b.processes(h) {
		if slices.Contains(p.Environ, "PLX_ROLE="+role) {
			n++
		}
	}
	return n
}
