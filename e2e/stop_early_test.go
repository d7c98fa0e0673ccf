//go:build long

package e2e

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/plx-run/plx/internal/test/patience"
)

// TestStopBeforeTheJob stops launches that are still connecting to a host, by
// a --via command that sends nothing. The launches must end and leave no job.
func TestStopBeforeTheJob(t *testing.T) {
	t.Parallel()
	b := local(t)
	launch := func() *running {
		r := b.start("launch", "--host", "h1", "--via", "sh -c 'exec sleep 1000' {host}", "--name", "early", "--start-timeout", "1h", "sleep", "1000")
		b.appear(filepath.Join(b.home, ".plx", "launching", fmt.Sprint(r.cmd.Process.Pid)))
		return r
	}
	for _, stop := range [][]string{{"stop", "early"}, {"stop", "sleep"}} {
		r := launch()
		contains(t, b.want(2, "stop").stderr, "0 running, 1 starting") // it was not named
		b.says(b.want(0, stop...), "the launch of early was stopped before its job began")
		b.says(r.want(143), "interrupted by signal terminated")
	}
	if len(b.jobsOf()) > 0 {
		t.Error("there is a job")
	}
	r := launch()
	b.want(2, "stop", "late")
	r.cmd.Process.Kill()
	<-r.done
	b.want(2, "stop", "early")
	if left, err := os.ReadDir(filepath.Join(b.home, ".plx", "launching")); err != nil || len(left) > 0 {
		t.Errorf("a dead launch has left %v, %v", left, err)
	}
}

// TestStopAnyTime stops attached and detached launches at different moments of
// their start. None of the jobs may continue.
func TestStopAnyTime(t *testing.T) {
	t.Parallel()
	b := local(t)
	for i, delay := range []time.Duration{0, 100, 200, 300, 400, 600, 900} {
		name := fmt.Sprintf("any%d", i)
		args := []string{"launch", "--local", "2x1", "--name", name, "--grace", "0s", "sleep", "1000"}
		if i%2 == 1 {
			args = append([]string{"launch", "--detach"}, args[1:]...)
		}
		r := b.start(args...)
		time.Sleep(delay * time.Millisecond)
		limit := time.Now().Add(patience.Limit)
		for res := b.run("stop", name); res.code != 0; res = b.run("stop", name) {
			if !strings.Contains(res.stderr, "this machine knows no such job") || time.Now().After(limit) {
				t.Fatalf("after %v: plx stop: status %d\n%s", delay*time.Millisecond, res.code, res.stderr)
			}
		}
		if res := r.wait(); i%2 == 0 && res.code != 143 {
			t.Errorf("after %v: the launch ends with %d\n%s", delay*time.Millisecond, res.code, res.stderr)
		}
		for id, j := range b.jobsOf() {
			if j.State == "running" {
				t.Errorf("after %v: job %s runs", delay*time.Millisecond, id)
			}
		}
	}
}
