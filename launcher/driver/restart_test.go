package driver_test

import (
	"fmt"
	"reflect"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/plx-run/plx/launcher/exit"
	"github.com/plx-run/plx/launcher/jobstate"
	"github.com/plx-run/plx/launcher/protocol"
)

// again returns a plan that allows restarts.
func again(r protocol.Restarts) protocol.Plan {
	r.Max, r.Backoff = 3, time.Second
	return protocol.Plan{Job: "j", Grace: grace, Settle: time.Second, StartTimeout: 5 * time.Minute, Lease: lease, Restarts: r}
}

func isPrepare(m protocol.Message) bool { return m.Prepare != nil }

// prepares lists the generations and tasks that an agent was asked to prepare,
// such as "1 ps:0 worker:0".
func (a *agent) prepares() []string {
	var asked []string
	ms, _ := a.heard(isPrepare)
	for _, m := range ms {
		text := fmt.Sprint(m.Prepare.Generation)
		for _, t := range m.Prepare.Tasks {
			text += " " + t.Task.String()
		}
		asked = append(asked, text)
	}
	return asked
}

func (j *job) noted(parts ...string) {
	j.t.Helper()
	all := strings.Join(j.verdict.Notices, "\n")
	for _, p := range parts {
		if !strings.Contains(all, p) {
			j.t.Errorf("no notice %q in\n%s", p, all)
		}
	}
}

func TestFailedTaskRestartsJob(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a, b := two(t)
		j := startPlan(t, again(protocol.Restarts{}), a, b)
		time.Sleep(time.Minute)
		b.exit(protocol.Exit{Task: task("worker:1"), Started: true, Signal: 9, Code: 137})
		finish(time.Minute, a, b)
		j.wait(0, "done, after 1 restart")
		j.noError()
		j.noted("worker:1 on h2 was ended by signal 9 (killed): restarting in ")
		if want := []string{"1 h1:2 h2:2"}; !reflect.DeepEqual(j.lays, want) {
			t.Errorf("laid %q, want %q", j.lays, want)
		}
		for _, a := range j.agents {
			starts, times := a.heard(isStart)
			if len(starts) != 2 || starts[1].Start.Generation != 1 || a.dials != 1 {
				t.Errorf("%s: %d dials, starts %+v", a.name, a.dials, starts)
			}
			// The expected time is that for collecting failures, plus the
			// backoff; the tasks end at once.
			if took := times[1].Sub(j.begun); took < time.Minute+2*time.Second || took > time.Minute+3*time.Second {
				t.Errorf("%s: the second start was after %v", a.name, took)
			}
		}
	})
}

// A host is unreachable for a while. The next generation starts only after the
// host's lease has expired, counted from the last renewal sent to it.
func TestLostHostRejoinsJob(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a, b := two(t)
		j := startPlan(t, again(protocol.Restarts{Revive: true, WaitHost: 10 * time.Minute}), a, b)
		time.Sleep(time.Minute)
		b.set(func() { b.mute, b.unreached, b.down = true, true, true })
		time.Sleep(4 * time.Minute)
		b.set(func() { b.down = false })
		finish(time.Minute, a, b)
		j.wait(0, "done, after 1 restart")
		j.noError()
		j.noted("host h2: not heard for 30s", "host h2: is back", "generation 1 starts on 2 hosts with 2 workers")
		if got, want := b.prepares(), []string{"0 ps:1 worker:1", "1 ps:1 worker:1"}; !reflect.DeepEqual(got, want) || b.lives != 1 {
			t.Errorf("h2 was asked to prepare %q, want %q; revived %d times", got, want, b.lives)
		}
		if j.ups.Load() != 3 || j.losses.Load() != 1 {
			t.Errorf("up %d times, lost %d times; want 3 and 1", j.ups.Load(), j.losses.Load())
		}
	})
}

// A host is lost for good, and the others are enough. They wait for its lease
// to expire, and the job succeeds without it.
func TestJobContinuesWithoutLostHost(t *testing.T) {
	for name, revive := range map[string]bool{"attached": true, "detached": false} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				a, b := two(t)
				j := startPlan(t, again(protocol.Restarts{Revive: revive, WaitHost: 10 * time.Minute, MinWorkers: 1}), a, b)
				time.Sleep(time.Minute)
				b.set(func() { b.mute, b.unreached, b.down = true, true, true })
				time.Sleep(2 * time.Minute)
				a.done("worker:0")
				j.wait(0, "done, after 1 restart")
				j.noError()
				j.within(3*time.Minute, 3*time.Minute+time.Second)
				j.noted("generation 1 starts on 1 host with 1 worker, without h2")
				if got, want := a.prepares(), []string{"0 ps:0 worker:0", "1 ps:0 worker:0"}; !reflect.DeepEqual(got, want) {
					t.Errorf("h1 was asked to prepare %q, want %q", got, want)
				}
				_, times := a.heard(isStart)
				// The driver stops renewing the lease of an agent that sends
				// nothing after a third of the lease.
				if over := b.renew.Add(lease); times[1].Before(over) || times[1].After(over.Add(10*time.Second)) {
					t.Errorf("the second start was at %v, the lost host's lease was over at %v", times[1], over)
				}
			})
		})
	}
}

func TestJobFailsIfLostHostStaysAway(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a, b := two(t)
		j := startPlan(t, again(protocol.Restarts{Revive: true, WaitHost: 3 * time.Minute}), a, b)
		time.Sleep(time.Minute)
		b.set(func() { b.mute, b.unreached, b.down = true, true, true })
		j.wait(exit.CodePlx, "no host came back within 3m0s (--wait-host); host h2: dial: no route to host")
		j.within(time.Minute+lease-time.Second+3*time.Minute, time.Minute+lease+3*time.Minute+10*time.Second)
		j.noError() // no error, because its lease has expired long ago
	})
}

// After an agent was killed, a new one is started as soon as the host can be
// dialed.
func TestKilledAgentIsReplaced(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a, b := two(t)
		j := startPlan(t, again(protocol.Restarts{Revive: true, MinWorkers: 1}), a, b)
		time.Sleep(time.Minute)
		b.set(func() { b.noAgent = true })
		b.cut()
		finish(10*time.Second, a, b)
		j.wait(0, "done, after 1 restart")
		j.noError()
		j.noted("host h2: connect: no agent of the job is left", "generation 1 starts on 2 hosts with 2 workers")
	})
}

// If the job has continued without a host, and the host returns, it gets an
// agent without tasks, which ends with the job.
func TestReturnedHostStaysIdle(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a, b := two(t)
		j := startPlan(t, again(protocol.Restarts{Revive: true, MinWorkers: 1}), a, b)
		time.Sleep(time.Minute)
		b.set(func() { b.mute, b.unreached, b.down = true, true, true })
		time.Sleep(5 * time.Minute)
		b.set(func() { b.down = false })
		time.Sleep(5 * time.Minute) // many leases
		a.done("worker:0")
		j.wait(0, "done, after 1 restart")
		j.noError()
		j.noted("host h2: is back; the next restart uses it")
		if ends, _ := b.heard(isEnd); len(b.prepares()) != 1 || len(ends) != 1 {
			t.Errorf("h2 was asked to prepare %q and to end %d times", b.prepares(), len(ends))
		}
	})
}

// The job ends while a new agent is being started on an unreachable host. The
// end of the job does not wait for that.
func TestJobEndDoesNotWaitForNewAgent(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a, b := two(t)
		j := startPlan(t, again(protocol.Restarts{Revive: true, MinWorkers: 1}), a, b)
		time.Sleep(time.Minute)
		b.set(func() { b.mute, b.unreached, b.hung = true, true, true })
		time.Sleep(2 * time.Minute)
		for _, want := range []bool{false, true} { // an attempt to start the agent has just begun
			for hangs := !want; hangs != want; b.set(func() { hangs = b.hangs }) {
				time.Sleep(100 * time.Millisecond)
			}
		}
		ended := time.Now()
		a.done("worker:0")
		j.wait(0, "done, after 1 restart")
		j.noError()
		if took := time.Since(ended); took < time.Second || took > 10*time.Second {
			t.Errorf("the end took %v", took)
		}
	})
}

// If the plan allows no restarts, lost agents are not replaced.
func TestLostAgentIsNotReplacedWithoutRestarts(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a, b := two(t)
		plan := again(protocol.Restarts{Revive: true, MinWorkers: 1})
		plan.Restarts.Max = 0
		j := startPlan(t, plan, a, b)
		time.Sleep(time.Minute)
		b.set(func() { b.noAgent = true })
		b.cut()
		j.wait(exit.CodePlx, "host h2: connect: no agent")
		j.within(time.Minute, time.Minute+5*time.Second)
		if b.lives != 0 {
			t.Error("a new agent was started")
		}
	})
}

func TestStopBetweenTwoGenerations(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a, b := two(t)
		j := startPlan(t, again(protocol.Restarts{Revive: true, WaitHost: time.Hour}), a, b)
		time.Sleep(time.Minute)
		b.set(func() { b.mute, b.unreached, b.down = true, true, true })
		time.Sleep(5 * time.Minute)
		j.stops <- jobstate.StopAsked{Reason: "stopped by Ctrl-C", Code: 130, Grace: grace}
		j.wait(130, "stopped by Ctrl-C")
		j.within(6*time.Minute, 6*time.Minute+time.Second)
		j.noError()
	})
}
