package e2e

import (
	"os/exec"
	"regexp"
	"runtime"
	"slices"
	"strings"
	"testing"

	"github.com/plx-run/plx/internal/test/testhosts"
)

var digestLine = regexp.MustCompile(`digest step=\d+ sha256=[0-9a-f]{64}`)

// digest runs a program and returns the digest that its chief (worker 0)
// prints. It runs the program under plx launch, or directly if no lines of a
// resource file are given.
func (b *bench) digest(lines []string, program string, flags ...string) string {
	b.t.Helper()
	var out string
	if len(lines) == 0 {
		cmd := exec.Command(program, flags...)
		cmd.Env = environ()
		text, err := cmd.Output()
		if err != nil {
			b.t.Fatalf("alone: %v\n%s", err, err.(*exec.ExitError).Stderr)
		}
		out = string(text)
	} else {
		res := b.want(0, append([]string{"launch", "--hosts", b.ResourceFile(lines...), program}, flags...)...)
		b.brief(res)
		out = res.stdout
	}
	found := digestLine.FindAllString(out, -1)
	if len(found) != 1 {
		b.t.Fatalf("%d digests in\n%s", len(found), out)
	}
	return found[0]
}

// mlpBits are flags of examples/mlp for a training with everything that could
// change bits: an optimiser with state, gradient clipping and dropout.
var mlpBits = []string{"--niters=12", "--dim-in=96", "--dim-hidden=64", "--n-classes=8", "--train-size=480", "--batch-size=48",
	"--optimizer=adam", "--learning-rate=0.01", "--clip-norm=0.5", "--dropout=0.3", "--virtual-workers=6"}

// Three hosts with different numbers of workers train to the same bits as one
// process, in every architecture. The long test TestSameBits tries other
// layouts and models.
func TestBitsOnHosts(t *testing.T) {
	t.Parallel()
	b := newBench(t, testhosts.Options{Hosts: 3}).withPlx()
	path := testhosts.Binary(t, "github.com/plx-run/plx/examples/mlp")
	flags := append(slices.Clone(mlpBits), "--digest", "--seed=3")
	want := b.digest(nil, path, flags...)
	for _, arch := range []string{"ps", "allreduce", "hybrid"} {
		t.Run(arch, func(t *testing.T) {
			if got := b.in(t).digest([]string{"h1: cpu*3", "h2", "h3: ps"}, path, append(slices.Clone(flags), "--arch="+arch)...); got != want {
				t.Errorf("got  %s\nwant %s", got, want)
			}
		})
	}
	b.hostsGone(0)
}

// A job that promises the same bits refuses a worker whose OpenBLAS selected
// other kernels. The error explains how to select the same kernels on all
// hosts.
func TestOtherKernelsAreRefused(t *testing.T) {
	t.Parallel()
	if runtime.GOARCH != "amd64" {
		t.Skip("the names of the kernels are those for amd64")
	}
	b := local(t)
	const script = `[ "$RANK" = 0 ] && k=Nehalem || k=Sandybridge; OPENBLAS_CORETYPE=$k exec "$0" "$@"`
	mlp := append([]string{testhosts.Binary(t, "github.com/plx-run/plx/examples/mlp"), "--arch=allreduce", "--digest", "--niters=2"}, mlpBits[1:]...)
	launch := []string{"launch", "--local", "1x2", "--ps", "none", "-v", "sh", "-c"}
	res := b.want(1, append(append(launch, script), mlp...)...)
	contains(t, res.stderr, "worker:1", "Sandybridge", "not \"OpenBLAS ", "Nehalem", "--env OPENBLAS_CORETYPE=Haswell gives")
	same := strings.Replace(script, "Sandybridge", "Nehalem", 1)
	res = b.want(0, append(append(launch, same), mlp...)...)
	contains(t, res.stderr, "Nehalem kernels")
}
