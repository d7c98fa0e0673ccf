package e2e

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/plx-run/plx/internal/executable"
	"github.com/plx-run/plx/internal/testhosts"
)

// TestContainerRestarts restarts the host of a detached job as a container: it keeps its
// name and the boot id of its machine, and gets another process table. The job counts as
// gone after its agent has written nothing for two minutes. The test sets that time back
// instead of waiting for it.
func TestContainerRestarts(t *testing.T) {
	t.Parallel()
	b := newBench(t, testhosts.Options{Hosts: 1})
	h1 := b.Hosts[0]
	job := b.detach("--hosts", b.ResourceFile(), "--ps", "none", "--name", "gone", "sleep", "1000")
	h1.RestartContainer()
	states, err := filepath.Glob(filepath.Join(h1.HomeDir, ".plx", "jobs", job, "*", "state.json"))
	if err != nil || len(states) != 1 {
		t.Fatalf("%v, %v", states, err)
	}
	rewrite := func(edit func(state map[string]any)) {
		t.Helper()
		text, err := os.ReadFile(states[0])
		if err != nil {
			t.Fatal(err)
		}
		var state map[string]any
		if err := json.Unmarshal(text, &state); err != nil {
			t.Fatal(err)
		}
		if state["alive"] == nil {
			t.Fatalf("the agent has not written that it lives: %s", text)
		}
		edit(state)
		if text, err = json.Marshal(state); err != nil {
			t.Fatal(err)
		}
		if err := executable.Write(states[0], text, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	rewrite(func(state map[string]any) { // the kernel may give the new process table the number of the old one
		machine, _, _ := strings.Cut(state["machine"].(string), " pid:")
		state["machine"], state["alive"] = machine+" pid:[1]", time.Now()
	})
	if got := b.jobsOf()[job]; got.State != "running" {
		t.Errorf("as long as the agent may live, plx jobs says %q", got.State)
	}
	rewrite(func(state map[string]any) { state["alive"] = time.Now().Add(-3 * time.Minute) })
	if got := b.jobsOf()[job]; got.State != "failed" {
		t.Errorf("plx jobs says %q", got.State)
	}
	res := b.want(125, "attach", job)
	b.says(res, "job", "host h1: the agent is gone: it was killed or the host was restarted")
	b.says(b.want(0, "stop", job), "had ended already")
	b.want(0, "prune", "--hosts", b.ResourceFile(), "--older", "0s")
	if exists(states[0]) {
		t.Error("plx prune keeps the job")
	}
	b.hostsGone(patience)
}
