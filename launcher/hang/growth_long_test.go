//go:build long

package hang

import (
	"encoding/json"
	"fmt"
	"testing"
	"time"

	"github.com/plx-run/plx/launcher/protocol"
	"github.com/plx-run/plx/trainer/cluster"
)

// TestManyTasks prints what docs/scale.md says of a job that hangs: its tasks are all
// connected to one another.
func TestManyTasks(t *testing.T) {
	fmt.Println("| workers | answer of a host | of all hosts | time to find the culprit |")
	fmt.Println("|---|---|---|---|")
	for _, workers := range []int{64, 256, 1000} {
		j := newJob(workers)
		j.mesh(workers / 2)
		text, err := json.Marshal(protocol.ActivityReport{Tasks: map[cluster.Task]*protocol.Activity{j.tasks[0].Name: j.tasks[0].Seen}})
		if err != nil {
			t.Fatal(err)
		}
		begun := time.Now()
		found := explain(j.tasks, 10*time.Minute)
		fmt.Printf("| %d | %d KiB | %.1f MiB | %v |\n", workers, len(text)>>10, float64(len(text)*workers)/(1<<20), time.Since(begun).Round(time.Millisecond))
		if want := fmt.Sprintf("worker:%d", workers/2); found.Culprit != want {
			t.Errorf("of %d workers %q is blamed, want %s", workers, found.Culprit, want)
		}
	}
}
