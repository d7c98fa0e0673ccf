//go:build linux

package supervisor

import (
	"math"
	"testing"

	"github.com/plx-run/plx/launcher/metrics"
	"github.com/plx-run/plx/trainer/cluster"
	"github.com/plx-run/plx/trainer/summary"
)

// Steps of a task that uses plx's trainer come from its control channel, in
// addition to the metrics in its output.
func TestMetricsOfANativeTask(t *testing.T) {
	one := &task{reported: newReported(metrics.History{}, nil)}
	one.receive(cluster.ControlMessage{Kind: cluster.Heartbeat})
	if got := one.reported.newest(); len(got) != 0 {
		t.Errorf("before the first step: %v", got)
	}
	one.reported.output(0, []byte("accuracy 0.5\n"))
	for range 2 {
		one.receive(cluster.ControlMessage{Kind: cluster.Heartbeat, Step: 7, Loss: "0.25"})
	}
	got := one.reported.newest()
	if len(got) != 3 || got[metrics.Step] != 7 || got["loss"] != 0.25 || got["accuracy"] != 0.5 {
		t.Errorf("%v, want step 7, loss 0.25 and accuracy 0.5", got)
	}
	one.receive(cluster.ControlMessage{Kind: cluster.Checkpoint, Step: 6})
	one.receive(cluster.ControlMessage{Kind: cluster.Finished, Step: 8, Loss: "NaN"})
	if got = one.reported.newest(); got[metrics.Step] != 8 || !math.IsNaN(float64(got["loss"])) {
		t.Errorf("%v, want step 8 and NaN", got)
	}
	if n := len(one.reported.history.Points("loss")); n != 2 {
		t.Errorf("%d points of the loss, want 2: a step was reported twice", n)
	}
}

// Keras writes epochs as the steps of some scalars into event files. Steps
// that the program prints take precedence over them.
func TestStepsOfEvents(t *testing.T) {
	r := newReported(metrics.History{}, nil)
	r.event(summary.Event{Step: 3, Tag: "epoch_loss", Value: 0.5})
	if got := r.newest(); got[metrics.Step] != 3 || got["epoch_loss"] != 0.5 {
		t.Errorf("%v, want the step of the event", got)
	}
	r.output(0, []byte("step 100\n"))
	r.event(summary.Event{Step: 4, Tag: "epoch_loss", Value: 0.25})
	if got := r.newest(); got[metrics.Step] != 100 || got["epoch_loss"] != 0.25 {
		t.Errorf("%v, want the step of the line", got)
	}
}
