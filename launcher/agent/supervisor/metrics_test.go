//go:build linux

package supervisor

import (
	"testing"

	"github.com/plx-run/plx/launcher/metrics"
	"github.com/plx-run/plx/trainer/cluster"
)

// The steps of a task of plx's trainer come from its control channel, beside what it prints.
func TestMetricsOfANativeTask(t *testing.T) {
	one := &task{reported: newReported(metrics.History{}, nil)}
	one.hear(cluster.ControlMessage{Kind: cluster.Heartbeat})
	if got := one.reported.newest(); len(got) != 0 {
		t.Errorf("before the first step: %v", got)
	}
	one.reported.output(0, []byte("loss 0.5\n"))
	one.hear(cluster.ControlMessage{Kind: cluster.Heartbeat, Step: 7})
	got := one.reported.newest()
	if len(got) != 2 || got[metrics.Step] != 7 || got["loss"] != 0.5 {
		t.Errorf("%v, want step 7 and loss 0.5", got)
	}
}
