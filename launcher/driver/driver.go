package driver

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/plx-run/plx/launcher/jobstate"
	"github.com/plx-run/plx/launcher/protocol"
)

// Host is one host of a job.
type Host struct {
	Name  string
	Agent Dialer // it may be a Reviver and a Watcher too
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

// Watcher is a Dialer that is told whether its agent is there. Its methods must not
// block.
type Watcher interface {
	Up()   // an agent has answered for the first time: the first one, and each new one
	Lost() // the driver has given the agent up
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
	// Observer is told what happens, in order and by one goroutine. Nil: none is.
	Observer Observer
	// Join returns how to reach a host that the job is to go on with. Its agent runs
	// already. The observer's goroutine calls it. Nil: such a host cannot be reached.
	Join func(index int, j protocol.Joining) Host
}

// Observer is told what happens to a job.
type Observer interface {
	Entered(phase protocol.Phase)
	Noted(line string)                              // a line for the user
	Laid(generation int, hosts []protocol.HostPlan) // where the tasks of a later generation run
}

// unobserved is the observer of a job that has none.
type unobserved struct{}

func (unobserved) Entered(protocol.Phase)        {}
func (unobserved) Noted(string)                  {}
func (unobserved) Laid(int, []protocol.HostPlan) {}

// driver is one run of a job. Its fields belong to the goroutine of Run, but for
// contacts, which lock themselves.
type driver struct {
	plan     protocol.Plan
	opts     Options
	machine  *jobstate.Machine
	contacts []*contact // by host index
	events   chan jobstate.Event
	timers   timers
	grace    time.Duration // the least that tasks were given to end so far
	verdict  *protocol.Verdict
	done     context.Context // ends with Run
	running  *sync.WaitGroup // contacts
	left     map[int]bool    // hosts that have left the job
	held     time.Time       // since when the chief holds the job for a change of hosts
}

// Run runs the job to its verdict. If ctx ends Run returns at once with ctx's error
// and leaves the agents to their leases; use Options.Stop to end a job in good
// order.
func Run(ctx context.Context, plan protocol.Plan, hosts []Host, opts Options) (protocol.Verdict, error) {
	if len(hosts) != len(plan.Hosts) || opts.Lease <= 0 {
		return protocol.Verdict{}, fmt.Errorf("drive %s: %d hosts for a plan of %d, lease %s", plan.Job, len(hosts), len(plan.Hosts), opts.Lease)
	}
	if opts.Observer == nil {
		opts.Observer = unobserved{}
	}
	done, cancel := context.WithCancel(ctx)
	var wg sync.WaitGroup
	d := &driver{
		plan: plan, opts: opts,
		machine: jobstate.New(plan),
		events:  make(chan jobstate.Event, 64),
		timers:  newTimers(done),
		grace:   plan.Grace,
		done:    done,
		running: &wg,
		left:    map[int]bool{},
	}
	defer wg.Wait()
	defer d.timers.wait()
	defer cancel()
	defer d.timers.stopAll()
	for i, h := range hosts {
		d.contact(i, h)
	}
	return d.loop(ctx)
}

// contact begins to look after a host.
func (d *driver) contact(index int, h Host) {
	c := newContact(index, h, d.opts.Lease, d.plan.Restarts.Max > 0, d.deliver)
	d.contacts = append(d.contacts, c)
	d.running.Go(func() { c.run(d.done) })
}

func (d *driver) loop(ctx context.Context) (protocol.Verdict, error) {
	d.carryOut(d.machine.Begin())
	for d.verdict == nil {
		select {
		case <-ctx.Done():
			return protocol.Verdict{}, ctx.Err()
		case e := <-d.events:
			d.carryOut(d.machine.Step(e))
		case t := <-d.timers.rings:
			if d.timers.isSet(t) { // else it was set again when it rang
				d.carryOut(d.machine.Step(jobstate.Elapsed{Timer: t.name}))
			}
		case ask := <-d.opts.Stop:
			d.carryOut(d.machine.Step(ask))
		}
	}
	return d.end(ctx)
}

// deliver hands an event to the loop.
func (d *driver) deliver(e jobstate.Event) {
	select {
	case d.events <- e:
	case <-d.done.Done():
	}
}
