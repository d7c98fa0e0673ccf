// Package driver runs a job. It executes the commands of the job's state
// machine (package jobstate), and reports events to the state machine.
//
// The driver holds one connection to the agent (plx on a host) of each host,
// renews the agents' leases, and redials lost connections. It returns how the
// job ended, the verdict, when every agent has ended or is lost. For an
// attached job (plx launch stays until the end), the driver runs in the plx
// launch process. For a detached job, it runs in the agent on the host of
// worker:0. It works in the same way in both processes.
//
//	verdict, err := driver.Run(ctx, plan, hosts, driver.Options{Lease: 30 * time.Second})
//
// # Files
//
//	driver.go   Run: the loop that passes events to the state machine; the end of all agents
//	contact.go  one host: dials its agents, one after the other, until the host is lost
//	pulse.go    detects that this process was suspended
//	session.go  one connection: queue, write, receive, renew the lease
//
// The driver starts agents only through the interfaces that the caller passes,
// and does not read logs.
package driver

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/plx-run/plx/launcher/event"
	"github.com/plx-run/plx/launcher/jobstate"
	"github.com/plx-run/plx/launcher/protocol"
)

// Host is one host of a job.
type Host struct {
	Name  string
	Agent Dialer // connects to the host's agent; may also implement Reviver, Queuer and Watcher
	// NoAgentMeansClean is true if the error ErrNoAgent from Dial proves that
	// all processes which the host's agent had started have ended.
	NoAgentMeansClean bool
}

// Dialer connects to the agent of one host. Only one goroutine at a time calls
// it.
type Dialer interface {
	// Dial returns a new connection, on which no message was sent yet. The
	// driver sends the first message, Attach. An error that wraps ErrNoAgent
	// means that the job's agent no longer runs on the host. The driver then
	// does not dial the host again.
	Dial(ctx context.Context) (*protocol.Conn, error)
}

// Reviver is a Dialer that can start a new agent. If a host's Dialer does not
// implement Reviver, the host is lost for the job as soon as its agent is
// lost.
type Reviver interface {
	// Revive kills the processes that the lost agent has left on the host,
	// starts a new agent, and connects to it. The driver calls Revive until it
	// succeeds or the job ends.
	Revive(ctx context.Context) (*protocol.Conn, error)
}

// Queuer is a Dialer that limits how many hosts are dialed at the same time.
type Queuer interface {
	// Turn waits until Dial may be called, and returns a function to call
	// after Dial. The time spent in Turn does not count towards the agent's
	// timeout. The driver cancels ctx if the job ends.
	Turn(ctx context.Context) (done func(), err error)
}

// Watcher is a Dialer whose methods the driver calls on events of the host's
// agent. The methods must not block.
type Watcher interface {
	Up()   // an agent has sent its first State; called for the first agent and for each replacement
	Lost() // the driver has given up the agent
	// Started receives the tasks that the agent has started, at the launch or
	// at a restart. Exited receives a task that has ended. If the connection
	// is lost, the agent may report a task again, and Exited is called twice
	// for it.
	Started(protocol.Started)
	Exited(protocol.Exit)
	// Logged receives log lines that the agent sends, possibly before Up is
	// called. At the end of every connection, Logged receives a message in
	// which Done is set.
	Logged(protocol.Logged)
	// Made receives the agent's count of the files that the job left on the
	// host. The agent counts them after the job's last process has ended; if
	// the agent is lost, Made is not called.
	Made(protocol.FileCounts)
}

// ErrNoAgent means that the host was reached, but no agent of the job runs on
// it.
var ErrNoAgent = errors.New("no agent of the job is left on the host")

// Options configure a driver, in addition to the job's plan.
type Options struct {
	// Lease is how long an agent keeps its tasks running without a lease
	// renewal. It is also how long an agent may send nothing before the driver
	// considers it lost. Required.
	Lease time.Duration
	// Stop delivers requests to end the job. Later requests may have a shorter
	// grace. Nil means that no such requests are made.
	Stop <-chan jobstate.StopAsked
	// Observer receives the job's events, in order and from one goroutine.
	// Required.
	Observer Observer
	// Events is the log of task events and driver decisions. Nil disables the
	// log.
	Events *event.Log
	// Join returns how to connect to a host that joins the running job. The
	// host's agent already runs. Join is called on the same goroutine as
	// Observer. It is required for jobs that hosts can join.
	Join func(index int, j protocol.Joining) Host
}

// Observer receives the events of a job.
type Observer interface {
	PhaseChanged(phase protocol.Phase)
	Notice(line string)                                      // receives a message for the user
	HangFound(protocol.Hang)                                 // is called when the job makes no progress; Notice has received the messages about the hang before
	TasksAssigned(generation int, hosts []protocol.HostPlan) // receives on which hosts the tasks of a new generation (after a restart) run
}

// driver is the state of one call of Run. Only the goroutine of Run uses the
// fields, except contacts and pulse, which have their own locks.
type driver struct {
	plan     protocol.Plan
	opts     Options
	machine  *jobstate.Machine
	contacts []*contact // one contact per host, in the order of the hosts' indices
	events   chan jobstate.Event
	timers   map[jobstate.Timer]time.Time // time at which each pending timer fires
	grace    time.Duration                // time between asking tasks to end and killing them; the shortest that was requested so far, at first Plan.Grace
	verdict  *protocol.Verdict            // final result; nil until the state machine has ended the job
	done     context.Context              // canceled when Run returns
	running  sync.WaitGroup               // waits for the goroutines of contacts and pulse
	left     map[int]bool                 // indices of the hosts that have left the job
	pulse    *pulse
	held     time.Time // when the chief (worker:0) last paused the job for plx scale; zero if never
}

// Run runs the job and returns its verdict: whether and why it failed. If ctx
// is canceled, Run returns at once and does not end the agents, which run
// until their leases expire. To end a job cleanly, use Options.Stop.
func Run(ctx context.Context, plan protocol.Plan, hosts []Host, opts Options) (protocol.Verdict, error) {
	if len(hosts) != len(plan.Hosts) || opts.Lease <= 0 {
		return protocol.Verdict{}, fmt.Errorf("drive %s: %d hosts for a plan of %d, lease %s", plan.Job, len(hosts), len(plan.Hosts), opts.Lease)
	}
	done, cancel := context.WithCancel(ctx)
	d := &driver{plan: plan, opts: opts, machine: jobstate.New(plan), events: make(chan jobstate.Event, 64),
		timers: map[jobstate.Timer]time.Time{}, grace: plan.Grace, done: done, left: map[int]bool{}, pulse: newPulse(opts.Lease, sinceBoot())}
	defer d.running.Wait()
	defer cancel()
	d.running.Go(func() { d.pulse.run(done) })
	for i, h := range hosts {
		d.contact(i, h)
	}
	return d.loop(ctx)
}

// contact starts the goroutine that keeps the driver connected to a host.
func (d *driver) contact(index int, h Host) {
	c := &contact{index: index, host: h, lease: d.opts.Lease, deliver: d.deliver, events: d.opts.Events, over: make(chan struct{})}
	c.finished, c.conclude = context.WithCancel(context.Background())
	c.watcher, _ = h.Agent.(Watcher)
	if d.plan.Restarts.Max > 0 {
		c.reviver, _ = h.Agent.(Reviver)
	}
	d.contacts = append(d.contacts, c)
	d.running.Go(func() { c.run(d.done) })
}

func (d *driver) loop(ctx context.Context) (protocol.Verdict, error) {
	d.carryOut(d.machine.Begin())
	for d.verdict == nil {
		timer, end := d.nextTimer()
		select {
		case <-ctx.Done():
			return protocol.Verdict{}, ctx.Err()
		case e := <-d.events:
			d.step(e)
		case <-end:
			delete(d.timers, timer)
			d.step(jobstate.Elapsed{Timer: timer})
		case ask := <-d.opts.Stop:
			d.step(ask)
		}
	}
	return d.end(ctx)
}

// step passes an event to the state machine. If this process was suspended,
// step reports the suspension first, because it may be the cause of the event.
func (d *driver) step(e jobstate.Event) {
	if gap := d.pulse.take(sinceBoot()); gap > 0 {
		d.carryOut(d.machine.Step(jobstate.Suspended{For: gap}))
	}
	d.carryOut(d.machine.Step(e))
}

// nextTimer returns the pending timer that fires first. The channel end is nil
// if no timer is pending.
func (d *driver) nextTimer() (first jobstate.Timer, end <-chan time.Time) {
	for t, at := range d.timers {
		if first == "" || at.Before(d.timers[first]) {
			first = t
		}
	}
	if first == "" {
		return first, nil
	}
	return first, time.After(time.Until(d.timers[first]))
}

// deliver passes an event to the method loop. It drops the event if Run has
// returned.
func (d *driver) deliver(e jobstate.Event) {
	select {
	case d.events <- e:
	case <-d.done.Done():
	}
}

func (d *driver) carryOut(commands []jobstate.Command) {
	for _, command := range commands {
		switch command := command.(type) {
		case jobstate.Send:
			if stop := command.Message.Stop; stop != nil {
				d.grace = min(d.grace, stop.Grace)
			}
			d.contacts[command.Host].out.send(command.Message)
		case jobstate.SetTimer:
			d.timers[command.Timer] = time.Now().Add(command.After)
		case jobstate.Note:
			d.opts.Events.Noted(command.Text)
			d.opts.Observer.Notice(command.Text)
		case jobstate.Hung:
			d.opts.Events.Hung(command.Hang)
			d.opts.Observer.HangFound(command.Hang)
		case jobstate.Enter:
			d.opts.Observer.PhaseChanged(command.Phase)
		case jobstate.Lay:
			d.opts.Events.Restarted(command.Generation, command.Hosts)
			d.opts.Observer.TasksAssigned(command.Generation, command.Hosts)
		case jobstate.Join:
			d.contact(command.Host, d.opts.Join(command.Host, command.Joining))
		case jobstate.Leave:
			d.left[command.Host] = true
			d.contacts[command.Host].finish(protocol.Message{End: &protocol.End{Verdict: protocol.Verdict{Reason: "the job goes on without this host"}}})
		case jobstate.Holding:
			d.held = time.Now().Add(-command.For)
		case jobstate.Answer:
			d.answer(command)
		case jobstate.Conclude:
			command.Verdict.Ended = time.Now().UTC().Round(0) // Round(0) strips the monotonic clock reading, which the wire format lacks
			d.verdict = &command.Verdict
		}
	}
}

// answer sends the result of a plx scale request to the process that made it,
// and prints a successful result for the user.
func (d *driver) answer(a jobstate.Answer) {
	scaled := a.Scaled
	if scaled.To > 0 && scaled.Cause == "" {
		scaled = scaled.After(time.Since(d.held))
		d.opts.Observer.Notice(scaled.String())
	}
	d.contacts[a.Host].out.send(protocol.Message{Scaled: &scaled})
}

// endMargin is how much longer the driver waits for agents to end than the
// tasks' grace, the time between asking tasks to end and killing them.
const endMargin = 15 * time.Second

// end sends every agent the job's final result. It then waits, up to a time
// limit, until all agents have closed their connections. An agent closes its
// connection when all processes of the job on its host have ended.
func (d *driver) end(ctx context.Context) (protocol.Verdict, error) {
	d.sendEnd()
	most := max(d.grace+endMargin, d.opts.Lease)
	limit := time.After(most)
	for _, c := range d.contacts {
		for waiting := true; waiting; {
			select {
			case <-c.over:
				waiting = false
			case e := <-d.events:
				if h, ok := e.(jobstate.Heard); ok && h.Message.Notice != "" {
					d.opts.Observer.Notice(fmt.Sprintf("host %s: %s", d.contacts[h.Host].host.Name, h.Message.Notice))
				}
			case ask := <-d.opts.Stop:
				if ask.Grace < d.grace { // send the End message again, with the shorter grace
					d.grace = ask.Grace
					d.sendEnd()
				}
			case <-limit:
				return *d.verdict, d.unended(most)
			case <-ctx.Done():
				return *d.verdict, ctx.Err()
			}
		}
	}
	return *d.verdict, d.unended(most)
}

func (d *driver) sendEnd() {
	for _, c := range d.contacts {
		c.finish(protocol.Message{End: &protocol.End{Grace: d.grace, Verdict: *d.verdict}})
	}
}

// UnendedError reports a host whose agent has not confirmed its end. The error
// of Run joins one UnendedError for each such host.
type UnendedError struct {
	Index int // index of the host: first the hosts passed to Run, then hosts that joined
	Host  string
	Cause error // why the agent's end was not confirmed
}

func (e *UnendedError) Error() string {
	return fmt.Sprintf("host %s: not seen to end: %v; what may run there ends with its lease", e.Host, e.Cause)
}

func (e *UnendedError) Unwrap() error { return e.Cause }

// unended returns an error that lists the hosts on which processes of the job
// may still run. Hosts that have left the job are not part of the error: for
// each of them, unended only prints a note.
func (d *driver) unended(waited time.Duration) error {
	var errs []error
	for i, c := range d.contacts {
		switch err := c.outcome(waited); {
		case err != nil && d.left[i]:
			d.opts.Observer.Notice(fmt.Sprintf("host %s, which has left the job, was not seen to end: %v", c.host.Name, err))
		case err != nil:
			errs = append(errs, &UnendedError{Index: i, Host: c.host.Name, Cause: err})
		}
	}
	return errors.Join(errs...)
}
