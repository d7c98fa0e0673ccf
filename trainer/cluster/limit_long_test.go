//go:build long && linux

package cluster_test

import (
	"errors"
	"fmt"
	"os/exec"
	"syscall"
	"testing"

	"github.com/plx-run/plx/trainer/cluster"
)

// TestMaximumTasksInEnvironment finds the maximum number of tasks in a job.
// Linux limits an environment variable to 128 KiB, and PLX_CLUSTER and
// TF_CONFIG contain the addresses of all tasks. docs/scale.md gives the
// result.
func TestMaximumTasksInEnvironment(t *testing.T) {
	starts := func(workers int) bool {
		c := cluster.Contract{Job: "j", Task: cluster.Chief, WorldSize: workers}
		for i := range workers {
			task := cluster.Task{Role: cluster.Worker, Index: i}
			c.Cluster.Set(task, fmt.Sprintf("10.100.%d.%d:%d", 100+i>>8, 100+i%100, 40000+i%20000))
			c.Foreign.Cluster.Set(task, c.Cluster.Addr(task))
		}
		cmd := exec.Command("true")
		cmd.Env = c.Environ()
		err := cmd.Run()
		if err != nil && !errors.Is(err, syscall.E2BIG) {
			t.Fatal(err)
		}
		return err == nil
	}
	most, tooMany := 1000, 20000
	if !starts(most) || starts(tooMany) {
		t.Fatalf("%d workers start: %v; %d: %v", most, starts(most), tooMany, starts(tooMany))
	}
	for tooMany-most > 1 {
		if middle := (most + tooMany) / 2; starts(middle) {
			most = middle
		} else {
			tooMany = middle
		}
	}
	fmt.Printf("%d workers start, of %d each ends with: argument list too long\n", most, tooMany)
}
