//go:build long

package e2e

import (
	"slices"
	"strings"
	"testing"

	"github.com/plx-run/plx/internal/test/testhosts"
)

// TestStuckTraining makes a worker of plx's trainer hang, while its heartbeats
// continue. plx must name this worker, print where it hangs before it ends any
// task, and restart the job.
func TestStuckTraining(t *testing.T) {
	t.Parallel()
	b := newBench(t, testhosts.Options{Hosts: 2})
	stuck := testhosts.Binary(t, "github.com/plx-run/plx/internal/test/testhosts/cmd/fake")
	res := b.want(0, "launch", "--hosts", b.ResourceFile("h1: cpu", "h2: cpu"), "--name", "stuck", "--grace", "1s", "--ps", "none",
		"--hang-timeout", "5s", "--on-hang", "restart", "--max-restarts", "1", stuck, "--arch", "allreduce", "--once", "--steps", "8", "deadlock")
	const culprit = "culprit: worker:1 on h2: it does not take part in the step that the others wait for: goroutine 1 [sync.Mutex.Lock]: main.go:"
	contains(t, res.stderr, "nothing has moved for ", "plx: rank 0 on h1: trainer.(*Session).Step (main.go:", "plx: rank 1 on h2: sync.(*Mutex).Lock (main.go:", culprit, ": restarting in 1s (attempt 1 of 1)\n", "restarted (1 of 1): generation 1 starts on ")
	contains(t, res.stdout, "step 4\n", "step 7\n")
	b.hostsGone(0)
	contains(t, b.want(0, "status", "stuck").stderr, culprit, "hung: nothing moved for ", ": restarting in 1s (attempt 1 of 1)")
	contains(t, b.want(0, "stacks", "--full", "stuck").stdout, "host h2:", "worker:1, ", "main.deadlock(", "Goroutines:\n")
}

// TestStuckGo makes a Go program without code for plx hang, while one of its
// goroutines still runs. plx must name the task, and make it print its
// goroutines before it ends the job.
func TestStuckGo(t *testing.T) {
	t.Parallel()
	b := newBench(t, testhosts.Options{Hosts: 3})
	stuck := testhosts.Binary(t, "github.com/plx-run/plx/internal/test/testhosts/cmd/fake")
	res := b.want(124, "launch", "--hosts", b.ResourceFile("h1: cpu", "h2: cpu", "h3: cpu"), "--grace", "2s", "--ps", "none",
		"--hang-timeout", "5s", "--on-hang", "stop", stuck, "--plain", "deadlock")
	contains(t, res.stderr, "culprit: worker:2 on h3: fake (pid ", "rank 1 on h2: waits for worker:0\n")
	b.hostsGone(0)
	// While the job runs, plx prints lines that several tasks write at the
	// same time only once. So check the stored logs.
	contains(t, b.want(0, "logs", "--task", "worker:2").stderr, "worker:2 h3 ! SIGQUIT: quit\n", "worker:2 h3 ! main.deadlock()\n")
}

// TestMaxTimeIsNoHang lets --max-time end a job that makes no progress. The
// job's record must not call this a hang.
func TestMaxTimeIsNoHang(t *testing.T) {
	t.Parallel()
	b := newBench(t, testhosts.Options{Hosts: 1})
	b.want(124, "launch", "--hosts", b.ResourceFile(), "--name", "slow", "--grace", "1s", "--max-time", "2s", "sleep", "600")
	jobs := b.want(0, "jobs").stdout
	contains(t, jobs, " failed ", " 124 ", "--max-time 2s ran out")
	contains(t, b.want(0, "status", "slow").stdout, "worker:0  h1    torn down  143")
}

// TestPanicInGoroutine runs a program that panics in a goroutine, where no
// caller can recover. The verdict must contain the first line of the panic and
// its place in the source.
func TestPanicInGoroutine(t *testing.T) {
	t.Parallel()
	b := newBench(t, testhosts.Options{Hosts: 2})
	stuck := testhosts.Binary(t, "github.com/plx-run/plx/internal/test/testhosts/cmd/fake")
	for name, args := range map[string][]string{"plain": {"--plain", "panics"}, "trainer": {"--arch", "allreduce", "panics"}} {
		launch := append([]string{"launch", "--hosts", b.ResourceFile("h1: cpu", "h2: cpu"), "--name", name, "--grace", "1s", "--ps", "none", stuck}, args...)
		var stderr string
		if name == "plain" {
			stderr = b.want(2, launch...).stderr
		} else {
			b.want(0, slices.Insert(launch, 1, "--detach")...)
			stderr = b.want(2, "attach", name).stderr
		}
		const reason = ": worker:1 on h2 exited with status 2: panic: assignment to entry in nil map (main.go:"
		contains(t, stderr, reason, ", in main.load)")
		status := strings.Join(strings.Fields(b.want(0, "status", name).stdout), " ") // remove alignment: the width of columns depends on other rows
		contains(t, status, reason[2:], "worker:1 h2 culprit 2", "worker:0 h1 ")
	}
	b.hostsGone(0)
}
