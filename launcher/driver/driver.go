// Package driver runs a job. It carries out the commands of the job's state machine
// (package jobstate) and reports to it what happens.
//
// The driver holds one connection to the agent of each host, renews the agents'
// leases, dials lost connections again, and returns the verdict when every agent
// has ended or is lost. It runs in the launcher while that is attached, and in the
// agent of the chief's host if the job is detached. It does not know which.
//
//	verdict, err := driver.Run(ctx, plan, hosts, driver.Options{Lease: 30 * time.Second})
//
// # Files
//
//	driver.go   Run: events in, commands out, timers; the end of all agents
//	contact.go  one host: dials its agents, one after the other, until the host is lost
//	pulse.go    whether this process was suspended
//	session.go  one connection: queue, write, receive, renew the lease
//
// The driver starts no agent by itself and reads no log.
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
	Agent Dialer // connects to the host's agent; it may be a Reviver, a Queuer and a Watcher too
	// Swept promises that Dial returns ErrNoAgent only if nothing is left of what
	// the agent ran.
	Swept bool
}

// Dialer connects to the agent of one host. One goroutine at a time calls it.
type Dialer interface {
	// Dial returns a new connection, opened but not attached. An error that wraps
	// ErrNoAgent says that the host has no agent of the job any more, so that
	// dialling again is of no use.
	Dial(ctx context.Context) (*protocol.Conn, error)
}

// Reviver is a Dialer that can start a new agent. The driver takes a host whose
// Dialer is no Reviver for lost as soon as its agent is lost.
type Reviver interface {
	// Revive ends what the lost agent has left on the host, and returns a connection
	// to a new agent. The driver calls it until it succeeds or the job ends.
	Revive(ctx context.Context) (*protocol.Conn, error)
}

// Queuer is a Dialer that must not dial while too many others do.
type Queuer interface {
	// Turn waits until Dial may be called, and returns what to call after it. The wait
	// does not count as silence of the agent. The driver ends ctx if the job ends.
	Turn(ctx context.Context) (done func(), err error)
}

// Watcher is a Dialer that is told of its agent. Its methods must not
// block.
type Watcher interface {
	Up()   // an agent has answered for the first time: the first one, and each new one
	Lost() // the driver has given the agent up
	// Started is told that the agent has started tasks of a generation, Exited that one of them
	// has ended. The latter may be told twice after a connection was lost.
	Started(protocol.Started)
	Exited(protocol.Exit)
	// Logged is told what the agent sends of the logs, perhaps before Up, and at the end of
	// every connection that no more comes.
	Logged(protocol.Logged)
	// Made is told what the job has made on the host, once nothing of it runs there any
	// more. It may not be called.
	Made(protocol.Made)
}

// ErrNoAgent says that a host was reached and has no agent of the job.
var ErrNoAgent = errors.New("no agent of the job is left on the host")

// Options are what a driver needs beside its plan.
type Options struct {
	// Lease is how long an agent lives without a renewal, and how long a host may
	// stay silent until it is lost. Required.
	Lease time.Duration
	// Stop asks the job to end. It may deliver several times, the last one with less
	// grace. Nil: never.
	Stop <-chan jobstate.StopAsked
	// Observer is told what happens, in order and by one goroutine. Required.
	Observer Observer
	// Events gets what happens to the tasks, and what the driver decides. Nil: nobody wants that.
	Events *event.Log
	// Join returns how to reach a host that the job is to go on with. Its agent runs
	// already. The observer's goroutine calls it. Required for jobs whose hosts change.
	Join func(index int, j protocol.Joining) Host
}

// Observer is told what happens to a job.
type Observer interface {
	Entered(phase protocol.Phase)
	Noted(line string)                              // a line for the user
	Hung(protocol.Hang)                             // nothing moves in the job, which lines for the user have said
	Laid(generation int, hosts []protocol.HostPlan) // where the tasks of a later generation run
}

// driver is one run of a job. Its fields belong to the goroutine of Run, but for
// contacts, which lock themselves.
type driver struct {
	plan     protocol.Plan
	opts     Options
	machine  *jobstate.Machine
	contacts []*contact // by host index
	events   chan jobstate.Event
	timers   map[jobstate.Timer]time.Time // when each pending timer ends
	grace    time.Duration                // shortest time to end that tasks were given; at first Plan.Grace
	verdict  *protocol.Verdict            // nil until the state machine has concluded the job
	done     context.Context              // ends when Run returns
	running  sync.WaitGroup               // goroutines of contacts
	left     map[int]bool                 // indices of hosts that have left the job
	pulse    *pulse
	held     time.Time // since when the chief has held the job for plx scale; zero: it never has
}

// Run runs the job to its verdict. If ctx ends Run returns at once with ctx's error
// and leaves the agents to their leases; use Options.Stop to end a job in good
// order.
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

// contact begins to look after a host.
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

// step reports an event to the state machine, after the suspension of this process that may
// have caused it.
func (d *driver) step(e jobstate.Event) {
	if gap := d.pulse.take(sinceBoot()); gap > 0 {
		d.carryOut(d.machine.Step(jobstate.Suspended{For: gap}))
	}
	d.carryOut(d.machine.Step(e))
}

// nextTimer returns the timer that ends first. end is nil if none is set.
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

// deliver hands an event to the loop.
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
			d.opts.Observer.Noted(command.Text)
		case jobstate.Hung:
			d.opts.Events.Hung(command.Hang)
			d.opts.Observer.Hung(command.Hang)
		case jobstate.Enter:
			d.opts.Observer.Entered(command.Phase)
		case jobstate.Lay:
			d.opts.Events.Restarted(command.Generation, command.Hosts)
			d.opts.Observer.Laid(command.Generation, command.Hosts)
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
			command.Verdict.Ended = time.Now().UTC().Round(0) // without the monotonic clock, which is not sent
			d.verdict = &command.Verdict
		}
	}
}

// answer tells the visitor that asked for other hosts, and the user, what came of
// it.
func (d *driver) answer(a jobstate.Answer) {
	scaled := a.Scaled
	if scaled.To > 0 && scaled.Cause == "" {
		scaled = scaled.After(time.Since(d.held))
		d.opts.Observer.Noted(scaled.String())
	}
	d.contacts[a.Host].out.send(protocol.Message{Scaled: &scaled})
}

// endMargin is added to the grace for an agent to end itself.
const endMargin = 15 * time.Second

// end sends every agent the verdict and waits, bounded, until their streams end:
// then nothing of the job is left on their hosts.
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
					d.opts.Observer.Noted(fmt.Sprintf("host %s: %s", d.contacts[h.Host].host.Name, h.Message.Notice))
				}
			case ask := <-d.opts.Stop:
				if ask.Grace < d.grace { // the agents are ending already
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

// UnendedError is a host that could not be told to end, or has not reported its end.
// The error of Run joins one for each such host.
type UnendedError struct {
	Index int // of the host; hosts that joined come after those that Run was given
	Host  string
	Cause error // why the host's end is not known
}

func (e *UnendedError) Error() string {
	return fmt.Sprintf("host %s: not seen to end: %v; what may run there ends with its lease", e.Host, e.Cause)
}

func (e *UnendedError) Unwrap() error { return e.Cause }

// unended names the hosts where something of the job may be left.
func (d *driver) unended(waited time.Duration) error {
	var errs []error
	for i, c := range d.contacts {
		switch err := c.outcome(waited); {
		case err != nil && d.left[i]:
			d.opts.Observer.Noted(fmt.Sprintf("host %s, which has left the job, was not seen to end: %v", c.host.Name, err))
		case err != nil:
			errs = append(errs, &UnendedError{Index: i, Host: c.host.Name, Cause: err})
		}
	}
	return errors.Join(errs...)
}
