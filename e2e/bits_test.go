package e2e

import (
	"os/exec"
	"regexp"
	"slices"
	"testing"

	"github.com/plx-run/plx/internal/testhosts"
)

var digestLine = regexp.MustCompile(`digest step=\d+ sha256=[0-9a-f]{64}`)

// digest runs plx, or the program alone where no line of a resource file is
// given, and returns the chief's digest.
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

// mlpBits are the flags of examples/mlp for a training of all that may change bits:
// an optimiser with state, clipping, dropout.
var mlpBits = []string{"--niters=12", "--dim-in=96", "--dim-hidden=64", "--n-classes=8", "--train-size=480", "--batch-size=48",
	"--optimizer=adam", "--learning-rate=0.01", "--clip-norm=0.5", "--dropout=0.3", "--virtual-workers=6"}

// Three unequal hosts train to the bits of one process, in every architecture. The
// long TestSameBits tries other layouts and models.
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
