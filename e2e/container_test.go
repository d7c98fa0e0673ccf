//go:build long

package e2e

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/plx-run/plx/internal/test/executable"
	"github.com/plx-run/plx/internal/test/patience"
	"github.com/plx-run/plx/internal/test/testhosts"
)

// TestContainerRestarts restarts the host of a detached job as a container:
// the host keeps its name and its machine's boot id, but gets a new process
// table. plx considers the job lost after its agent has written nothing for
// two minutes. The test sets the recorded time back instead of waiting.
func TestContainerRestarts(t *testing.T) {
	t.Parallel()
	b := newBench(t, testhosts.Options{Hosts: 1})
	h1 := b.Hosts[0]
	job := b.detach("--hosts", b.ResourceFile(), "--ps", "none", "--name", "gone", "sleep", "1000")
	h1.RestartContainer()
	path := b.statePath(h1, job)
	b.otherTable(path)
	if got := b.jobsOf()[job]; got.State != "running" {
		t.Errorf("as long as the agent may live, plx jobs says %q", got.State)
	}
	b.rewrite(path, func(state map[string]any) { state["alive"] = time.Now().Add(-3 * time.Minute) })
	if got := b.jobsOf()[job]; got.State != "failed" {
		t.Errorf("plx jobs says %q", got.State)
	}
	res := b.want(125, "attach", job)
	b.says(res, "job", "host h1: the agent is gone: it was killed or the host was restarted")
	b.says(b.want(0, "stop", job), "had ended already")
	b.want(0, "prune", "--hosts", b.ResourceFile(), "--older", "0s")
	if exists(path) {
		t.Error("plx prune keeps the job")
	}
	b.hostsGone(patience.Limit)
}

// TestAttachOfARestartedHost restarts a host as a container; another host
// drives the job. For two minutes, plx cannot know whether the restarted
// host's agent still writes logs. plx attach and plx logs -f must not wait
// that long after the job has ended.
func TestAttachOfARestartedHost(t *testing.T) {
	t.Parallel()
	b := newBench(t, testhosts.Options{Hosts: 2})
	job := b.detach("--hosts", b.ResourceFile(), "--ps", "none", "--lease", lease.String(), b.script("up", "echo up; exec sleep 300"))
	attached, followed := b.start("attach", job), b.start("logs", "-f", job)
	for _, r := range []*running{attached, followed} {
		r.awaitLine("worker:1", "up")
	}
	b.Hosts[1].RestartContainer()
	b.otherTable(b.statePath(b.Hosts[1], job))
	restarted := time.Now()
	res := attached.want(125)
	b.took("until plx attach ended", restarted, lease+15*time.Second)
	b.says(res, "job", "host h2: ")
	b.says(res, "host h2: logs: the last lines may be missing")
	followed.want(125)
	b.took("until plx logs -f ended", restarted, lease+15*time.Second)
	// The process that reads the logs on the host notices the closed
	// connection when it sends its next heartbeat.
	b.hostsGone(patience.Limit)
}

// statePath returns the path of the file in which a host's agent records the
// state of a job.
func (b *bench) statePath(h *testhosts.Host, job string) string {
	b.t.Helper()
	states, err := filepath.Glob(filepath.Join(h.HomeDir, ".plx", "jobs", job, "*", "state.json"))
	if err != nil || len(states) != 1 {
		b.t.Fatalf("%v, %v", states, err)
	}
	return states[0]
}

// rewrite edits the state file that an agent has left behind.
func (b *bench) rewrite(path string, edit func(state map[string]any)) {
	b.t.Helper()
	text, err := os.ReadFile(path)
	if err != nil {
		b.t.Fatal(err)
	}
	var state map[string]any
	if err := json.Unmarshal(text, &state); err != nil {
		b.t.Fatal(err)
	}
	if state["alive"] == nil {
		b.t.Fatalf("the agent has not written that it lives: %s", text)
	}
	edit(state)
	if text, err = json.Marshal(state); err != nil {
		b.t.Fatal(err)
	}
	if err := executable.Write(path, text, 0o600); err != nil {
		b.t.Fatal(err)
	}
}

// otherTable changes the process table that an agent's state file names, so
// that it differs from the host's table. Without this change, a restarted
// container could get the same number from the kernel as before.
func (b *bench) otherTable(path string) {
	b.t.Helper()
	b.rewrite(path, func(state map[string]any) {
		machine, _, _ := strings.Cut(state["machine"].(string), " pid:")
		state["machine"], state["alive"] = machine+" pid:[1]", time.Now()
	})
}
