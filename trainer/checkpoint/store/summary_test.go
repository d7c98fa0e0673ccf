package store

import (
	"strings"
	"testing"
	"time"

	"github.com/plx-run/plx/trainer/checkpoint"
	"github.com/plx-run/plx/trainer/cluster"
)

func TestFormatSizesAndTimes(t *testing.T) {
	buddy := worker(0)
	s := &save{held: 300 * time.Microsecond, began: time.Now().Add(-20 * time.Millisecond),
		buddies: map[cluster.Task]*cluster.Task{ps(0): &buddy, ps(1): &buddy}}
	got := s.line(&checkpoint.Manifest{Step: 40, Files: []checkpoint.File{{Size: 1 << 20}, {Size: 200 << 10}, {}}}, func(t cluster.Task) string { return string(t.Role) })
	if !strings.HasPrefix(got, "checkpoint of step 40: 1.2 MiB in 3 files on 2 hosts, steps held for 300µs, written in 2") {
		t.Error(got)
	}
	for n, want := range map[int64]string{0: "0 bytes", 1023: "1023 bytes", 1024: "1.0 KiB", 1023 << 10: "1.0 MiB", 5 << 40: "5.0 TiB", 5 << 50: "5120.0 TiB"} {
		if got := size(n); got != want {
			t.Errorf("%d: %s, want %s", n, got, want)
		}
	}
}

// Messages name the host of a task. The task of a job with only one task has
// no address.
func TestMessagesNameHosts(t *testing.T) {
	var spec cluster.Spec
	spec.Set(ps(0), "gpu03:4711")
	c := Config{Cluster: spec}
	if got := []string{c.name(ps(0)), c.name(worker(0))}; got[0] != "ps:0 on gpu03" || got[1] != "worker:0 on this host" {
		t.Errorf("tasks are named %q", got)
	}
	c.Host = func(cluster.Task) string { return "rack7" }
	if got := c.name(ps(0)); got != "ps:0 on rack7" {
		t.Errorf("with names of hosts it is %q", got)
	}
}
