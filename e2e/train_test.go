package e2e

import (
	"fmt"
	"strings"
	"testing"

	"github.com/plx-run/plx/internal/testhosts"
)

func TestEmbeddedCluster(t *testing.T) {
	t.Parallel()
	b := local(t)
	mlp := testhosts.Binary(t, "github.com/plx-run/plx/examples/mlp")
	res := b.want(0, "launch", mlp, "--niters", "101", "--train-size", "2000")
	contains(t, res.stderr, "embedded cluster")
	if losses := trainLosses(t, res.stdout); len(losses) != 2 || losses[1] > 0.7*losses[0] {
		t.Errorf("losses %v in\n%s", losses, res.stdout)
	}
	res = b.want(0, "launch", "--local", "1x3", testhosts.Binary(t, "github.com/plx-run/plx/examples/linear"))
	if !strings.Contains(res.stdout, "worker:0") {
		t.Errorf("stdout:\n%s", res.stdout)
	}
}

// trainLosses are those that the chief of examples/mlp printed, every 100 steps.
func trainLosses(t *testing.T, stdout string) (losses []float64) {
	t.Helper()
	printed := lines(stdout, "worker:0")
	if len(printed) == 0 || !strings.HasPrefix(printed[0], "n-layers 4 | dim-in 1024 | ") {
		t.Fatalf("the chief does not begin with its configuration: %q", printed)
	}
	for i, line := range printed[1:] {
		var step int
		var loss float64
		if _, err := fmt.Sscanf(line, "step %d | train_loss %f", &step, &loss); err != nil || step != 100*i {
			t.Errorf("line %d is %q, want that of step %d: %v", i, line, 100*i, err)
		}
		losses = append(losses, loss)
	}
	return losses
}
