package driver_test

import (
	"context"
	"errors"
	"fmt"
	"reflect"
	"runtime"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/plx-run/plx/launcher/driver"
	"github.com/plx-run/plx/launcher/exit"
	"github.com/plx-run/plx/launcher/jobstate"
	"github.com/plx-run/plx/launcher/protocol"
)

const (
	lease = 30 * time.Second
	grace = 10 * time.Second
)

// job is a run of a driver with simulated agents, in a synctest bubble.
type job struct {
	t      *testing.T
	agents []*agent
	plan   protocol.Plan
	stops  chan jobstate.StopAsked
	phases []protocol.Phase
	notes  []string
	lays   []string
	ups    atomic.Int32
	losses atomic.Int32
	made   atomic.Int32 // files
	logged atomic.Int32 // bytes of logs
	closed atomic.Int32 // number of connections that have reported the end of their logs
	begun  time.Time
	cancel context.CancelFunc
	done   chan struct{}

	verdict protocol.Verdict
	err     error
	took    time.Duration
}

func start(t *testing.T, agents ...*agent) *job {
	return startPlan(t, protocol.Plan{Job: "j", Grace: grace, Settle: time.Second, StartTimeout: 5 * time.Minute}, agents...)
}

func startPlan(t *testing.T, plan protocol.Plan, agents ...*agent) *job {
	return startWith(t, plan, func(j *job, a *agent) driver.Dialer {
		if plan.Restarts.Revive {
			return reviver{dialer{a, j}}
		}
		return dialer{a, j}
	}, agents...)
}

func startWith(t *testing.T, plan protocol.Plan, reach func(*job, *agent) driver.Dialer, agents ...*agent) *job {
	ctx, cancel := context.WithCancel(context.Background())
	j := &job{t: t, agents: agents, plan: plan, stops: make(chan jobstate.StopAsked), begun: time.Now(), cancel: cancel, done: make(chan struct{})}
	var hosts []driver.Host
	for _, a := range agents {
		j.plan.Hosts = append(j.plan.Hosts, protocol.HostPlan{Host: a.name, Tasks: a.specs})
		hosts = append(hosts, driver.Host{Name: a.name, Agent: reach(j, a), NoAgentMeansClean: true})
	}
	go func() {
		defer close(j.done)
		j.verdict, j.err = driver.Run(ctx, j.plan, hosts, driver.Options{Lease: lease, Stop: j.stops, Observer: j})
		j.took = time.Since(j.begun)
		if left := goroutines(); left != "" {
			t.Errorf("Run has returned and left\n%s", left)
		}
	}()
	return j
}

// PhaseChanged, Notice and TasksAssigned record what the driver reports.
func (j *job) PhaseChanged(p protocol.Phase) { j.phases = append(j.phases, p) }
func (j *job) Notice(line string)            { j.notes = append(j.notes, line) }
func (j *job) HangFound(protocol.Hang)       {}
func (j *job) TasksAssigned(generation int, hosts []protocol.HostPlan) {
	text := fmt.Sprint(generation)
	for _, h := range hosts {
		text += fmt.Sprintf(" %s:%d", h.Host, len(h.Tasks))
	}
	j.lays = append(j.lays, text)
}

// dialer is the Dialer of a simulated agent.
type dialer struct {
	agent *agent
	job   *job
}

func (d dialer) Dial(ctx context.Context) (*protocol.Conn, error) { return d.agent.dial(ctx) }
func (d dialer) Up()                                              { d.job.ups.Add(1) }
func (d dialer) Started(protocol.Started)                         {}
func (d dialer) Exited(protocol.Exit)                             {}
func (d dialer) Lost()                                            { d.job.losses.Add(1) }
func (d dialer) Made(made protocol.FileCounts)                    { d.job.made.Add(int32(made.Files)) }

func (d dialer) Logged(part protocol.Logged) {
	d.job.logged.Add(int32(len(part.Data)))
	if part.Done {
		d.job.closed.Add(1)
	}
}

// reviver is a dialer that can also start a new agent.
type reviver struct{ dialer }

func (r reviver) Revive(ctx context.Context) (*protocol.Conn, error) { return r.agent.revive(ctx) }

// goroutines returns the stacks of the driver's goroutines. It omits
// goroutines that have finished their work and are about to exit.
func goroutines() string {
	left := stacks()
	for n := 0; left != "" && n < 10000; n++ {
		runtime.Gosched()
		left = stacks()
	}
	return left
}

func stacks() string {
	buf := make([]byte, 1<<20)
	var left []string
	for _, stack := range strings.Split(string(buf[:runtime.Stack(buf, true)]), "\n\n") {
		if strings.Contains(stack, "plx/launcher/driver.") {
			left = append(left, stack)
		}
	}
	return strings.Join(left, "\n\n")
}

// wait waits for the end of the job, and checks the exit code and reason.
func (j *job) wait(code int, reason string) {
	j.t.Helper()
	<-j.done
	j.cancel()
	if j.verdict.Code != code || !strings.Contains(j.verdict.Reason, reason) {
		j.t.Errorf("verdict %d: %s; want %d: ...%s...", j.verdict.Code, j.verdict.Reason, code, reason)
	}
}

// within checks the job's duration, in the bubble's time.
func (j *job) within(least, most time.Duration) {
	j.t.Helper()
	if j.took < least || j.took > most {
		j.t.Errorf("took %v, want %v to %v", j.took, least, most)
	}
}

func (j *job) noError() {
	j.t.Helper()
	if j.err != nil {
		j.t.Errorf("error: %v", j.err)
	}
}

// errorNames checks that the error of Run names exactly these hosts.
func (j *job) errorNames(hosts ...string) {
	j.t.Helper()
	for _, a := range j.agents {
		want := false
		for _, h := range hosts {
			want = want || h == a.name
		}
		if j.err == nil || strings.Contains(j.err.Error(), "host "+a.name+":") != want {
			j.t.Errorf("error %v; want one that names %v", j.err, hosts)
		}
	}
}

// done makes the named worker exit with status 0.
func (a *agent) done(name string) { a.exit(protocol.Exit{Task: task(name), Started: true}) }

// finish sleeps, and then makes both workers exit with status 0.
func finish(after time.Duration, a, b *agent) {
	time.Sleep(after)
	a.done("worker:0")
	b.done("worker:1")
}

func two(t *testing.T) (*agent, *agent) {
	return newAgent(t, "h1", "ps:0", "worker:0"), newAgent(t, "h2", "ps:1", "worker:1")
}

func TestNormalRun(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a, b := two(t)
		j := start(t, a, b)
		finish(10*time.Minute, a, b) // many leases
		j.wait(0, "done")
		j.noError()
		j.within(10*time.Minute, 10*time.Minute)
		want := []protocol.Phase{protocol.Idle, protocol.Ready, protocol.Ready, protocol.Running, protocol.Over}
		if !reflect.DeepEqual(j.phases, want) || len(j.notes) > 0 || j.ups.Load() != 2 || j.made.Load() != 4 || j.logged.Load() != 6 || j.closed.Load() != 2 {
			t.Errorf("phases %v, notes %q, %d times up, %d files made, %d bytes logged, %d times to the end", j.phases, j.notes, j.ups.Load(), j.made.Load(), j.logged.Load(), j.closed.Load())
		}
		for _, a := range j.agents {
			ends, _ := a.heard(isEnd)
			if a.dials != 1 || len(ends) != 1 || !reflect.DeepEqual(ends[0].End.Verdict, j.verdict) {
				t.Errorf("%s: %d dials, End %+v", a.name, a.dials, ends)
			}
		}
	})
}

func TestLostConnectionIsRedialed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a, b := two(t)
		j := start(t, a, b)
		time.Sleep(time.Minute)
		b.cut()
		b.done("worker:1") // the driver is not connected when the worker exits
		synctest.Wait()
		a.done("worker:0")
		j.wait(0, "done")
		j.noError()
		j.within(time.Minute, time.Minute+5*time.Second)
		if starts, _ := b.heard(isStart); len(starts) != 1 || b.dials != 2 || j.ups.Load() != 2 {
			t.Errorf("%d starts, %d dials, %d times up; want 1, 2, 2", len(starts), b.dials, j.ups.Load())
		}
		if len(j.notes) != 2 || !strings.Contains(j.notes[0], "host h2: connection lost: the agent closed it") {
			t.Errorf("notes %q", j.notes)
		}
	})
}

// A connection may be lost in every phase of the start, before or after the
// agent has received the request.
func TestConnectionLossDuringStart(t *testing.T) {
	for _, lost := range []string{"requests", "answers"} {
		t.Run(lost, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				a, b := two(t)
				a.clumsy = lost
				j := start(t, a, b)
				finish(time.Minute, a, b)
				j.wait(0, "done")
				j.noError()
				if starts, _ := a.heard(isStart); a.dials != 5 || len(starts) != 2 {
					t.Errorf("%d dials, %d starts; want 5 and 2", a.dials, len(starts))
				}
				if starts, _ := b.heard(isStart); b.dials != 1 || len(starts) != 1 {
					t.Errorf("the other host: %d dials, %d starts; want 1 and 1", b.dials, len(starts))
				}
			})
		})
	}
}

func TestStartTimeout(t *testing.T) {
	for name, fault := range map[string]func(*agent){
		"unreached": func(a *agent) { a.unreached = true },
		"mute":      func(a *agent) { a.mute = true }, // like a binary that was replaced by one that does nothing
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				a, b := two(t)
				fault(b)
				j := startPlan(t, protocol.Plan{Grace: grace, StartTimeout: 5 * time.Second}, a, b)
				j.wait(exit.CodePlx, "host h2 did not start within 5s")
				j.within(5*time.Second, 5*time.Second+lease)
				j.errorNames("h2")
			})
		})
	}
}

func TestMaxTime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a, b := two(t)
		j := startPlan(t, protocol.Plan{Grace: grace, MaxTime: time.Hour}, a, b)
		j.wait(exit.CodeTimeout, "--max-time 1h0m0s ran out")
		j.within(time.Hour, time.Hour+time.Second)
		j.noError()
	})
}

func TestFailedTaskStopsOtherTasks(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a, b := two(t)
		j := start(t, a, b)
		time.Sleep(time.Minute)
		b.exit(protocol.Exit{Task: task("worker:1"), Started: true, Code: 3})
		j.wait(3, "worker:1 on h2 exited with status 3")
		j.within(time.Minute+time.Second, time.Minute+2*time.Second) // the settling time
		j.noError()
	})
}

func TestAgentThatDoesNotEndIsReported(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a, b := two(t)
		b.stubborn = true
		j := start(t, a, b)
		finish(time.Minute, a, b)
		j.wait(0, "done")
		j.within(time.Minute+lease, time.Minute+lease+time.Second)
		if j.errorNames("h2"); !strings.Contains(j.err.Error(), "no answer within "+lease.String()) {
			t.Errorf("%v does not say how long was waited", j.err)
		}
	})
}

// A closed stream does not prove that the agent has ended. Only the agent's
// last State does, or that no agent runs on the host.
func TestClosedStreamIsNoProofOfEnd(t *testing.T) {
	t.Run("gone", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			a, b := two(t)
			b.vanishes = true
			j := start(t, a, b)
			finish(time.Minute, a, b)
			j.wait(0, "done")
			j.noError()
			if b.dials != 2 {
				t.Errorf("h2 was dialled %d times, want once more to see that it is gone", b.dials)
			}
		})
	})
	t.Run("cut", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			a, b := two(t)
			b.stubborn = true
			j := start(t, a, b)
			finish(time.Minute, a, b)
			time.Sleep(time.Second) // End has come
			b.set(func() { b.stubborn = false })
			b.cut()
			j.wait(0, "done")
			j.noError()
			if ends, _ := b.heard(isEnd); len(ends) != 2 {
				t.Errorf("End came %d times, want again on the new connection", len(ends))
			}
		})
	})
}

func TestStopTwice(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a, b := two(t)
		a.slow, b.slow = true, true
		j := start(t, a, b)
		time.Sleep(time.Minute)
		ask := jobstate.StopAsked{Reason: "stopped by Ctrl-C", Code: 130, Grace: grace}
		j.stops <- ask
		time.Sleep(time.Second)
		ask.Grace = 0
		j.stops <- ask
		j.wait(130, "stopped by Ctrl-C")
		j.noError()
		for _, a := range j.agents {
			stops, _ := a.heard(isStop)
			ends, _ := a.heard(isEnd)
			if len(stops) != 2 || stops[0].Stop.Grace != grace || stops[1].Stop.Grace != 0 {
				t.Errorf("%s: stops %+v", a.name, stops)
			}
			if len(ends) != 1 || ends[0].End.Grace != 0 {
				t.Errorf("%s: End %+v, want one without the grace that the user took away", a.name, ends)
			}
		}
	})
}

func TestStopWhileEnding(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a, b := two(t)
		a.stubborn, b.stubborn = true, true
		j := start(t, a, b)
		finish(time.Minute, a, b)
		time.Sleep(time.Second)
		b.cut() // receives the stop after it has reconnected
		j.stops <- jobstate.StopAsked{Reason: "stopped by Ctrl-C", Code: 130, Grace: grace}
		j.stops <- jobstate.StopAsked{Reason: "stopped by Ctrl-C", Code: 130}
		j.wait(0, "done")
		for _, a := range j.agents {
			ends, _ := a.heard(isEnd)
			if len(ends) < 2 || ends[0].End.Grace != grace || ends[len(ends)-1].End.Grace != 0 {
				t.Errorf("%s: %d Ends", a.name, len(ends))
			}
		}
	})
}

func TestAgentNoticesReachObserver(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a := newAgent(t, "h1", "worker:0")
		a.stubborn = true
		j := start(t, a)
		time.Sleep(time.Second)
		a.say("the disk is full")
		a.done("worker:0")
		time.Sleep(time.Second)
		a.say("process 7 does not end")
		a.set(func() { a.noAgent = true })
		a.cut()
		j.wait(0, "done")
		want := []string{"host h1: the disk is full", "host h1: process 7 does not end"}
		if !reflect.DeepEqual(j.notes, want) {
			t.Errorf("notes %q, want %q", j.notes, want)
		}
	})
}

func TestCanceledContextEndsRun(t *testing.T) {
	for _, when := range []string{"dialling", "running", "ending", "with a deaf agent"} {
		t.Run(when, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				a, b := two(t)
				b.unreached, a.stubborn = when == "dialling", true
				j := start(t, a, b)
				time.Sleep(10 * time.Second)
				if when == "ending" {
					a.done("worker:0")
					b.done("worker:1")
				}
				b.set(func() { b.deaf = when == "with a deaf agent" })
				time.Sleep(5 * time.Second)
				j.cancel()
				<-j.done
				if !errors.Is(j.err, context.Canceled) || j.took != 15*time.Second {
					t.Errorf("%v after %v", j.err, j.took)
				}
			})
		})
	}
}

func TestPlanWithWrongHostCountIsRejected(t *testing.T) {
	plan := protocol.Plan{Job: "j", Hosts: make([]protocol.HostPlan, 2)}
	for _, c := range []struct {
		hosts int
		lease time.Duration
	}{{1, lease}, {3, lease}, {2, 0}} {
		if _, err := driver.Run(context.Background(), plan, make([]driver.Host, c.hosts), driver.Options{Lease: c.lease}); err == nil {
			t.Errorf("%d hosts, lease %v: no error", c.hosts, c.lease)
		}
	}
}

// With many hosts, in real time, each agent is dialed once and receives each
// message once.
func TestManyHosts(t *testing.T) {
	for _, hosts := range []int{3, 100} {
		var agents []*agent
		for i := range hosts {
			agents = append(agents, newAgent(t, fmt.Sprintf("h%d", i), fmt.Sprintf("ps:%d", i), fmt.Sprintf("worker:%d", i)))
		}
		j := start(t, agents...)
		for i, a := range agents {
			for starts, _ := a.heard(isStart); len(starts) == 0; starts, _ = a.heard(isStart) {
				time.Sleep(time.Millisecond)
			}
			a.done(fmt.Sprintf("worker:%d", i))
		}
		j.wait(0, "done")
		j.noError()
		for _, a := range agents {
			got, _ := a.heard(func(protocol.Message) bool { return true })
			if len(got) != 6 || a.dials != 1 { // messages: attach, prepare, check, start, stop the server, end
				t.Errorf("%d hosts: agent %s was dialled %d times and got %d messages, want 6", hosts, a.name, a.dials, len(got))
			}
		}
	}
}
