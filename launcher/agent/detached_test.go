//go:build linux

package agent

import (
	"testing"
	"time"

	"github.com/plx-run/plx/internal/test/patience"
	"github.com/plx-run/plx/launcher/agent/process"
	"github.com/plx-run/plx/launcher/protocol"
)

// detached starts the agents of a job on two hosts and makes the first agent
// the driver.
func detached(t *testing.T, lease time.Duration, args ...string) (a, b *testHost) {
	t.Helper()
	return restarting(t, lease, protocol.Restarts{}, args...)
}

// restarting does so with restarts.
func restarting(t *testing.T, lease time.Duration, restarts protocol.Restarts, args ...string) (a, b *testHost) {
	t.Helper()
	a, b = newHost(t, 1, args...), newHost(t, 1, args...)
	b.spec.Job, b.spec.HostIndex, b.spec.Host = a.spec.Job, 1, "gpu02"
	b.spec.Folder = "gpu02"
	b.spec.Tasks[0].Task = worker(1)
	a.spec.Lease, b.spec.Lease = lease, lease
	a.spec.WorldSize, b.spec.WorldSize = 2, 2
	a.spec.Detached, b.spec.Detached = true, true
	la, sa := a.start()
	lb, sb := b.start()
	plan := protocol.Plan{Job: a.spec.Job, Grace: time.Second, Settle: 100 * time.Millisecond, StartTimeout: patience.Limit, Restarts: restarts,
		Hosts: []protocol.HostPlan{{Host: "gpu01", Tasks: a.spec.Tasks, Drives: true}, {Host: "gpu02", Tasks: b.spec.Tasks}}}
	la.send(protocol.Message{Drive: &protocol.Drive{Plan: plan, Peers: []protocol.Peer{
		{Index: 0, Host: "gpu01", Addr: sa.Addr}, {Index: 1, Host: "gpu02", Addr: sb.Addr}}}})
	la.closed() // the agent's driver has replaced these connections
	lb.closed()
	return a, b
}

func over(t *testing.T, h *testHost) protocol.State {
	t.Helper()
	var state protocol.State
	eventually(t, h.spec.Host+" is over and gone", func() bool {
		left, err := process.OfJob(h.spec.Job, h.spec.Folder)
		if err != nil || len(left) > 0 {
			return false
		}
		state, err = h.folder().ReadState()
		return err == nil && state.Phase == protocol.Over
	})
	return state
}

func TestDetachedJobRunsToItsEnd(t *testing.T) {
	a, b := detached(t, patience.Limit, "exit", "3")
	for _, h := range []*testHost{a, b} {
		if state := over(t, h); state.Verdict.Code != 3 || state.Verdict.First == nil {
			t.Errorf("%s: verdict %+v", h.spec.Host, state.Verdict)
		}
	}
}

// The agent that drives the job records the current placement of tasks in its
// state file, for plx commands on other machines.
func TestDriverRecordsTheLayoutInTheState(t *testing.T) {
	a, b := restarting(t, patience.Limit, protocol.Restarts{Max: 1}, "exit", "3")
	laid := over(t, a).Layout
	if laid == nil || laid.Generation != 1 || len(laid.Hosts) != 2 || laid.Hosts[1].Host != "gpu02" || len(laid.Hosts[1].Tasks) != 1 {
		t.Errorf("layout %+v", laid)
	}
	if laid := over(t, b).Layout; laid != nil {
		t.Errorf("on the other host: %+v", laid)
	}
}

func TestDetachedJobCanBeWatchedAndStopped(t *testing.T) {
	a, b := detached(t, patience.Limit, "wait")
	v, state := a.attach(false)
	if state.JobPhase != protocol.Running {
		v.wait("a running job", func(m protocol.Message) bool { return m.State != nil && m.State.JobPhase == protocol.Running })
	}
	vb, _ := b.attach(false) // stopped from any host
	vb.send(protocol.Message{Stop: &protocol.Stop{Grace: time.Second, Reason: "stopped by alice", Code: 143}})
	for _, h := range []*testHost{a, b} {
		if state := over(t, h); state.Verdict.Code != 143 || state.Verdict.Reason != "stopped by alice" {
			t.Errorf("%s: verdict %+v", h.spec.Host, state.Verdict)
		}
	}
}

func TestLostDriverEndsADetachedJob(t *testing.T) {
	if testing.Short() {
		t.Skip("takes seconds")
	}
	t.Parallel()
	a, b := detached(t, 5*time.Second, "stubborn")
	b.prints("worker-1.stdout", "ghost")
	state, _ := a.folder().ReadState()
	for _, pid := range []int{state.Watchdog, state.Supervisor} {
		kill(t, pid)
	}
	if v := over(t, b).Verdict; v.Code != 125 {
		t.Errorf("verdict %+v", v)
	}
	a.ask(protocol.DoReap) // watchdog and supervisor are killed too
}
