package e2e

import (
	"os/exec"
	"regexp"
	"slices"
	"strconv"
	"strings"
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

// The promise: the same bits for any number of workers, on one host or four,
// in every architecture, alone or under plx. The long tests try every layout with
// every program in every architecture.
func TestSameBits(t *testing.T) {
	sameBits(t, func(program, layout, arch string) bool {
		return layout == "unequal hosts" || arch == "hybrid" && (program == "mlp with adam" || layout == "eight workers")
	})
}

// sameBits tries what is chosen.
func sameBits(t *testing.T, chosen func(program, layout, arch string) bool) {
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
		skip  []string // layouts with more workers than virtual ones
	}{
		{"mlp with adam", []string{"--niters=12", "--dim-in=96", "--dim-hidden=64", "--n-classes=8", "--train-size=480", "--batch-size=48",
			"--optimizer=adam", "--learning-rate=0.01", "--clip-norm=0.5", "--dropout=0.3", "--virtual-workers=6"}, []string{"eight workers"}},
		{"mlp with momentum", []string{"--niters=12", "--dim-in=96", "--dim-hidden=64", "--n-classes=8", "--train-size=480", "--batch-size=48",
			"--optimizer=momentum", "--clip-norm=0.5", "--virtual-workers=8"}, nil},
		{"cifar", []string{"--steps=3", "--batch-size=16", "--samples=64", "--virtual-workers=8"}, nil},
		{"words", []string{"--steps=8", "--virtual-workers=8"}, nil},
	} {
		path := testhosts.Binary(t, "github.com/plx-run/plx/examples/"+strings.Fields(program.name)[0])
		flags := append(slices.Clone(program.flags), "--digest", "--seed=3")
		want := b.digest(nil, path, flags...)
		for layout, lines := range layouts {
			for _, arch := range []string{"ps", "allreduce", "hybrid"} {
				if slices.Contains(program.skip, layout) || !chosen(program.name, layout, arch) {
					continue
				}
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

// One command per mode trains on four hosts.
func TestEveryModeTrains(t *testing.T) {
	b := newBench(t, testhosts.Options{Hosts: 4})
	mlp := testhosts.Binary(t, "github.com/plx-run/plx/examples/mlp")
	file := b.ResourceFile("h1", "h2", "h3", "h4")
	for _, mode := range [][]string{
		{"--arch=ps"}, {"--arch=allreduce"}, {"--arch=hybrid"},
		{"--sync=sync"}, {"--sync=async"}, {"--sync=ssp:3"}, {"--sync=group:2"},
		{"--sync=backup:1", "--slow-worker=3"}, // somebody is always last; let it not be the chief
	} {
		t.Run(strings.Join(mode, " "), func(t *testing.T) {
			b := b.in(t)
			args := append([]string{"launch", "--hosts", file, mlp, "--niters=121", "--dim-in=256", "--n-classes=8",
				"--train-size=2000", "--learning-rate=0.05"}, mode...)
			res := b.want(0, args...)
			losses := testLosses(t, res.stdout)
			first, last := losses[0], losses[len(losses)-1]
			if !(last < 0.8*first) {
				t.Errorf("the test loss went from %v to %v", first, last)
			}
			b.hostsGone(0)
		})
	}
}

var testLossField = regexp.MustCompile(` test_loss ([0-9.]+)`)

// testLosses are the test losses in the chief's lines, of which there must be
// two: a chief that was late prints those of the steps that it was in time for.
func testLosses(t *testing.T, stdout string) (losses []float64) {
	t.Helper()
	for _, found := range testLossField.FindAllStringSubmatch(stdout, -1) {
		loss, err := strconv.ParseFloat(found[1], 64)
		if err != nil {
			t.Fatal(err)
		}
		losses = append(losses, loss)
	}
	if len(losses) != 2 {
		t.Fatalf("%d test losses, want 2, in\n%s", len(losses), stdout)
	}
	return losses
}
