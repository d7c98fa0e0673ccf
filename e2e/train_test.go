package e2e

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/plx-run/plx/internal/testhosts"
)

// A killed worker and a killed server end the run with an error that names
// them.
func TestLostPeerIsNamed(t *testing.T) {
	b := newBench(t, testhosts.Options{Hosts: 2})
	mlp := testhosts.Binary(t, "github.com/plx-run/plx/examples/mlp")
	file := b.ResourceFile("h1", "h2")
	arch := map[string]string{"worker:1": "allreduce", "ps:1": "ps"}
	for task := range arch {
		t.Run(task, func(t *testing.T) {
			b.t = t
			r := b.start("launch", "--hosts", file, mlp, "--niters", "100000", "--arch", arch[task])
			r.await(r.stdout, "step 100 ")
			role, index, _ := strings.Cut(task, ":")
			b.killOne(b.Hosts[1], func(p testhosts.Process) bool {
				return slices.Contains(p.Environ, "PLX_ROLE="+role) && slices.Contains(p.Environ, "PLX_TASK_INDEX="+index)
			})
			res := r.want(137)
			if !strings.Contains(res.stderr, task+" on h2 was ended by signal 9") {
				t.Errorf("stderr does not name %s:\n%s", task, res.stderr)
			}
			b.hostsGone(0)
		})
	}
}

func TestEmbeddedCluster(t *testing.T) {
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
	for i, line := range lines(stdout, "worker:0") {
		var step int
		var loss float64
		if _, err := fmt.Sscanf(line, "step %d | train_loss %f", &step, &loss); err != nil || step != 100*i {
			t.Errorf("line %d is %q, want that of step %d: %v", i, line, 100*i, err)
		}
		losses = append(losses, loss)
	}
	return losses
}
