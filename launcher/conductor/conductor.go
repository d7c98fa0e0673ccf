// Package conductor runs a job: it carries out what a coordinator commands
// and tells it what happens.
//
// It holds one connection to the agent of each host, renews their leases,
// dials a lost connection again, and returns the verdict once every agent has
// ended or is known to be lost. It runs in the launcher while that is
// attached and in the agent of the chief's host when the job is detached; it
// does not know which.
//
//	verdict, err := conductor.Run(ctx, plan, hosts, conductor.Options{Lease: 30 * time.Second})
//
// It starts no agent and reads no log.
package conductor

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/plx-run/plx/launcher/coordinator"
	"github.com/plx-run/plx/launcher/protocol"
)

// Host is how one agent is reached.
type Host struct {
	Name string
	// Dial returns a new connection to the agent, opened but not attached.
	// An error that wraps ErrNoAgent says that there is none any more, and
	// dialling again is of no use. Dial is called by one goroutine at a time.
	Dial func(ctx context.Context) (*protocol.Conn, error)
	// Revive ends what the agent that was lost has left on the host, and
	// returns a connection to a new one. It is called again until it succeeds
	// or the job ends, by the goroutine that calls Dial. Nil: a host that is
	// lost is lost for good.
	Revive func(ctx context.Context) (*protocol.Conn, error)
	// Swept says that Dial returns ErrNoAgent only when nothing of what the
	// agent ran is left either.
	Swept bool
	// Up is called when an agent first answers: the first one, and each that
	// takes its place; Lost when it is given up. Nil: ignored. They must not
	// block.
	Up, Lost func()
}

// ErrNoAgent says that a host was reached and has no agent of the job.
var ErrNoAgent = errors.New("no agent of the job is left on the host")

// Options are what a conductor needs beside its plan.
type Options struct {
	// Lease is how long an agent lives without being renewed. A host that
	// was not heard for as long is lost. Required.
	Lease time.Duration
	// Stop asks the job to end; it may deliver several times, the last with
	// less grace. Nil: never.
	Stop <-chan coordinator.StopAsked
	// OnPhase and OnNote are called in order, by one goroutine. Nil: ignored.
	OnPhase func(protocol.Phase)
	OnNote  func(string)
	// OnLay is told where the tasks of a generation after the first run.
	OnLay func(generation int, hosts []protocol.HostPlan)
	// Join returns how a host is reached that the job is to go on with, whose
	// agent runs already; it is called like OnNote. Nil: there is no way.
	Join func(index int, j protocol.Joining) Host
}

// conductor is one run. Its fields belong to the goroutine of Run, but for
// links, which lock themselves.
type conductor struct {
	plan    protocol.Plan
	opts    Options
	machine *coordinator.Machine
	links   []*link
	events  chan coordinator.Event
	timers  map[coordinator.Timer]*timer
	rings   chan *timer
	ringing sync.WaitGroup // timers that are set
	grace   time.Duration  // the least that tasks were given so far
	verdict *protocol.Verdict
	done    context.Context // ends with Run
	running *sync.WaitGroup // links
	left    map[int]bool    // hosts that the job goes on without
	held    time.Time       // since when the chief holds the job for a change of hosts
}

// Run runs the job to its verdict. When ctx ends it gives up at once with
// ctx's error and leaves the agents to their leases; to end a job in good
// order use Options.Stop.
func Run(ctx context.Context, plan protocol.Plan, hosts []Host, opts Options) (protocol.Verdict, error) {
	if len(hosts) != len(plan.Hosts) || opts.Lease <= 0 {
		return protocol.Verdict{}, fmt.Errorf("conduct %s: %d hosts for a plan of %d, lease %s", plan.Job, len(hosts), len(plan.Hosts), opts.Lease)
	}
	done, cancel := context.WithCancel(ctx)
	c := &conductor{
		plan: plan, opts: opts,
		machine: coordinator.New(plan),
		events:  make(chan coordinator.Event, 64),
		timers:  map[coordinator.Timer]*timer{},
		rings:   make(chan *timer),
		grace:   plan.Grace,
		done:    done,
		left:    map[int]bool{},
	}
	var wg sync.WaitGroup
	c.running = &wg
	defer wg.Wait()
	defer c.ringing.Wait()
	defer cancel()
	defer c.stopTimers()
	for i, h := range hosts {
		c.link(i, h)
	}
	return c.loop(ctx)
}

// link begins to look after a host.
func (c *conductor) link(index int, h Host) {
	if c.plan.Restarts.Max <= 0 {
		h.Revive = nil
	}
	l := newLink(index, h, c.opts.Lease, c.deliver)
	c.links = append(c.links, l)
	c.running.Go(func() { l.run(c.done) })
}

func (c *conductor) loop(ctx context.Context) (protocol.Verdict, error) {
	c.carryOut(c.machine.Begin())
	for c.verdict == nil {
		select {
		case <-ctx.Done():
			return protocol.Verdict{}, ctx.Err()
		case e := <-c.events:
			c.carryOut(c.machine.Step(e))
		case t := <-c.rings:
			if c.timers[t.name] == t { // else it was set anew when it rang
				c.carryOut(c.machine.Step(coordinator.Elapsed{Timer: t.name}))
			}
		case ask := <-c.opts.Stop:
			c.carryOut(c.machine.Step(ask))
		}
	}
	return c.end(ctx)
}

// deliver hands an event to the loop.
func (c *conductor) deliver(e coordinator.Event) {
	select {
	case c.events <- e:
	case <-c.done.Done():
	}
}

func (c *conductor) carryOut(commands []coordinator.Command) {
	for _, command := range commands {
		switch command := command.(type) {
		case coordinator.Send:
			if stop := command.Message.Stop; stop != nil {
				c.grace = min(c.grace, stop.Grace)
			}
			c.links[command.Host].send(command.Message)
		case coordinator.SetTimer:
			c.setTimer(command)
		case coordinator.Note:
			if c.opts.OnNote != nil {
				c.opts.OnNote(command.Text)
			}
		case coordinator.Enter:
			if c.opts.OnPhase != nil {
				c.opts.OnPhase(command.Phase)
			}
		case coordinator.Lay:
			if c.opts.OnLay != nil {
				c.opts.OnLay(command.Generation, command.Hosts)
			}
		case coordinator.Join:
			c.join(command)
		case coordinator.Leave:
			c.left[command.Host] = true
			c.links[command.Host].finish(protocol.Message{End: &protocol.End{Verdict: protocol.Verdict{Reason: "the job goes on without this host"}}})
		case coordinator.Holding:
			c.held = time.Now().Add(-command.For)
		case coordinator.Answer:
			c.answer(command)
		case coordinator.Conclude:
			c.verdict = &command.Verdict
		}
	}
}

// timer is one that the machine has set. One of the same name takes its place,
// even if it is just ringing.
type timer struct {
	name coordinator.Timer
	*time.Timer
}

func (c *conductor) setTimer(set coordinator.SetTimer) {
	c.stopTimer(set.Timer)
	c.ringing.Add(1)
	t := &timer{name: set.Timer}
	c.timers[set.Timer] = t
	t.Timer = time.AfterFunc(set.After, func() {
		defer c.ringing.Done()
		select {
		case c.rings <- t:
		case <-c.done.Done():
		}
	})
}

func (c *conductor) stopTimer(name coordinator.Timer) {
	if old := c.timers[name]; old != nil && old.Stop() {
		c.ringing.Done()
	}
	delete(c.timers, name)
}

func (c *conductor) stopTimers() {
	for t := range c.timers {
		c.stopTimer(t)
	}
}

// endMargin is added to the grace for an agent to end itself.
const endMargin = 15 * time.Second

// end sends every agent the verdict and waits, bounded, until their streams
// end: then nothing of the job is left on their hosts.
func (c *conductor) end(ctx context.Context) (protocol.Verdict, error) {
	c.sendEnd()
	limit := time.NewTimer(max(c.grace+endMargin, c.opts.Lease))
	defer limit.Stop()
	for _, l := range c.links {
		for waiting := true; waiting; {
			select {
			case <-l.over:
				waiting = false
			case e := <-c.events:
				c.late(e)
			case ask := <-c.opts.Stop:
				c.hurry(ask)
			case <-limit.C:
				return *c.verdict, c.unended()
			case <-ctx.Done():
				return *c.verdict, ctx.Err()
			}
		}
	}
	return *c.verdict, c.unended()
}

func (c *conductor) sendEnd() {
	for _, l := range c.links {
		l.finish(protocol.Message{End: &protocol.End{Grace: c.grace, Verdict: *c.verdict}})
	}
}

// late passes on what an agent says while it ends.
func (c *conductor) late(e coordinator.Event) {
	if h, ok := e.(coordinator.Heard); ok && h.Message.Notice != "" && c.opts.OnNote != nil {
		c.opts.OnNote(fmt.Sprintf("host %s: %s", c.links[h.Host].host.Name, h.Message.Notice))
	}
}

// hurry takes grace away from agents that are ending.
func (c *conductor) hurry(ask coordinator.StopAsked) {
	if ask.Grace < c.grace {
		c.grace = ask.Grace
		c.sendEnd()
	}
}

// UnendedError is a host that could not be told to end, or did not say that it
// had. The error of Run joins one for each.
type UnendedError struct {
	Index int // into the hosts of Run
	Host  string
	Cause error
}

func (e *UnendedError) Error() string {
	return fmt.Sprintf("host %s: not seen to end: %v; what may run there ends with its lease", e.Host, e.Cause)
}

func (e *UnendedError) Unwrap() error { return e.Cause }

// unended names the hosts of which it is not known that nothing is left there.
func (c *conductor) unended() error {
	var errs []error
	for i, l := range c.links {
		err := l.outcome()
		if err != nil && c.left[i] {
			if c.opts.OnNote != nil {
				c.opts.OnNote(fmt.Sprintf("host %s, which has left the job, was not seen to end: %v", l.host.Name, err))
			}
		} else if err != nil {
			errs = append(errs, &UnendedError{Index: i, Host: l.host.Name, Cause: err})
		}
	}
	return errors.Join(errs...)
}
