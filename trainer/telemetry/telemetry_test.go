package telemetry

import (
	"fmt"
	"log/slog"
	"slices"
	"testing"
	"time"

	"github.com/plx-run/plx/trainer/cluster"
	"github.com/plx-run/plx/trainer/config"
	"github.com/plx-run/plx/trainer/summary"
)

// Only the chief must log the number of steps per second, once every half
// minute.
func TestChiefLogsStepsPerSecond(t *testing.T) {
	for index, want := range [][]string{
		{"step 15: 0.5 steps per second", "step 27: 0.4 steps per second"}, nil,
	} {
		var lines []string
		c := config.Default()
		r, err := Open(&c, cluster.Task{Role: cluster.Worker, Index: index}, func(_ slog.Level, format string, args ...any) {
			lines = append(lines, fmt.Sprintf(format, args...))
		})
		if err != nil {
			t.Fatal(err)
		}
		now := time.Unix(1000, 0)
		for step := range 30 {
			length := 2 * time.Second
			if step >= 15 {
				length = 2500 * time.Millisecond
			}
			if err := r.After(summary.Scalars{Step: uint64(step)}, 1, Timing{Begin: now, End: now.Add(length)}, nil); err != nil {
				t.Fatal(err)
			}
			now = now.Add(length)
		}
		if !slices.Equal(lines, want) {
			t.Errorf("worker:%d logged %q, want %q", index, lines, want)
		}
	}
}
