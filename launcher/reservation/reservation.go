// Package reservation waits until the GPUs for a job are free, and reserves
// them for the job's agents.
//
//	held, err := reservation.Wait(ctx, reservation.Request{Hosts: wanted, Limit: 30 * time.Minute, ...})
//	defer held.Close()
//
// On each host, the agent that will run the job joins the queue for GPUs and
// locks the job's GPUs. A launch gets the locks on all its hosts or on none.
// It never keeps some locks while it waits for others, so two launches cannot
// block each other.
//
// The agent's package gpulock implements the locks and the queues. This
// package does not access GPUs.
package reservation

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/plx-run/plx/launcher/console"
	"github.com/plx-run/plx/launcher/hosts"
	"github.com/plx-run/plx/launcher/protocol"
)

// NewTicket returns a ticket, which identifies a launch in the queues for
// GPUs. Tickets sort by the time at which the launches began, according to the
// clocks of the machines that run plx launch.
func NewTicket() string {
	return fmt.Sprintf("%013s-%s", strconv.FormatInt(time.Now().UnixNano(), 36), strings.ToLower(rand.Text()[:8]))
}

// Request describes the GPUs that a launch waits for.
type Request struct {
	Hosts   []Host
	Ticket  string
	Limit   time.Duration // how long to wait before Wait fails
	Printer *console.Printer
	// Busy returns which processes use the GPUs without a reservation, or ""
	// if none does. It is called while the locks are held.
	Busy func(context.Context) (string, error)
}

// Host is a host and the GPUs to reserve there, at least one.
type Host struct {
	Agent  *hosts.AgentHost // the agent on this host, which will run the job
	Claims []protocol.Claim
}

// Held represents reserved GPUs. Until Close is called, it sends messages to
// the agents that hold the locks, because an agent without messages ends. A
// nil *Held has no GPUs.
type Held struct {
	stop    context.CancelFunc
	keeping sync.WaitGroup
}

// Wait returns when all locks are held and no process uses the GPUs. While
// Wait waits, it prints the launch's place in the queue and the reason why it
// cannot continue.
func Wait(ctx context.Context, r Request) (*Held, error) {
	var all group
	for _, h := range r.Hosts {
		all = append(all, h.host(r.Ticket))
	}
	_, _, err := all.request(ctx, protocol.ReserveQueue)
	if err == nil {
		err = r.wait(ctx, all)
	}
	if err != nil {
		return nil, err // When this launch exits, its agents end too, which releases their locks.
	}
	keep, stop := context.WithCancel(context.WithoutCancel(ctx))
	held := &Held{stop: stop}
	held.keeping.Go(func() { all.keep(keep) })
	return held, nil
}

// queuePause is the time between two attempts while the launch waits in the
// queue. busyPause is the time after an attempt that got the locks and found
// the GPUs in use. It is longer, because an attempt that gets the locks runs
// nvidia-smi on the hosts.
const (
	queuePause = time.Second
	busyPause  = 5 * time.Second
)

func (r Request) wait(ctx context.Context, all group) error {
	shown := ""
	for deadline := time.Now().Add(r.Limit); ; {
		pause := queuePause
		place, cause, err := all.take(ctx)
		if err == nil && place == 1 && cause == "" {
			if cause, err = r.Busy(ctx); err == nil && cause == "" {
				return nil
			}
			err = errors.Join(err, all.drop(ctx))
			pause = busyPause
		}
		if err != nil {
			return err
		}
		why := fmt.Sprintf("place %d in the queue", place)
		if cause != "" {
			why += ": " + cause
		}
		if why != shown {
			r.Printer.Printf("waiting for GPUs: %s", why)
			shown = why
		}
		left := time.Until(deadline)
		if left <= 0 {
			return fmt.Errorf("no GPUs within %s: %s", r.Limit, why)
		}
		select {
		case <-time.After(min(pause, left)):
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
}

// Close stops sending the messages without which the agents would end while
// they wait for the job. Close of a nil *Held does nothing.
func (b *Held) Close() {
	if b == nil {
		return
	}
	b.stop()
	b.keeping.Wait()
}

// group is all hosts on which the job reserves GPUs.
type group []*host

// take tries to take the locks on all hosts; if it fails on one host, it
// releases the locks on the others. place is this launch's place in the queue,
// counted from 1. cause is why the locks could not be taken; it is "" if they
// were taken, or if the launch is not first in the queue.
//
// take begins with the first host alone. So if two launches want the same
// hosts, the launch that locks the first host gets all.
func (all group) take(ctx context.Context) (place int, cause string, err error) {
	ahead, _, err := all.request(ctx, protocol.ReserveQueue)
	if err != nil || len(ahead) > 0 {
		return len(ahead) + 1, "", err
	}
	for _, some := range []group{all[:1], all[1:]} {
		ahead, causes, err := some.request(ctx, protocol.ReserveTake)
		if err != nil || len(causes) > 0 {
			return len(ahead) + 1, strings.Join(causes, "; "), errors.Join(err, all.drop(ctx))
		}
	}
	return 1, "", nil
}

// drop releases the locks on all hosts. The launch stays in the queue.
func (all group) drop(ctx context.Context) error {
	_, _, err := all.request(ctx, protocol.ReserveDrop)
	return err
}

// request sends the request ask to the agents of all hosts. ahead has the tickets
// of launches that are earlier in the queue. causes says which hosts refused
// the request, and why.
func (all group) request(ctx context.Context, ask string) (ahead, causes []string, err error) {
	answers := make([]protocol.Reservation, len(all))
	err = hosts.Each(ctx, all, func(i int, h *host) (err error) {
		answers[i], err = h.ask(ctx, ask)
		return err
	})
	before := map[string]bool{}
	for i, a := range answers {
		for _, ticket := range a.Ahead {
			before[ticket] = true
		}
		if a.Cause != "" {
			causes = append(causes, fmt.Sprintf("host %s: %s", all[i].Name(), a.Cause))
		}
	}
	return slices.Sorted(maps.Keys(before)), causes, err
}

// keepEvery is the time between two messages to agents that hold locks. An
// agent that receives no message for a minute ends.
const keepEvery = 10 * time.Second

// keep sends messages to the agents so that they keep their locks. It returns
// when ctx ends.
func (all group) keep(ctx context.Context) {
	tick := time.NewTicker(keepEvery)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
			for _, h := range all {
				h.keep(ctx)
			}
		}
	}
}
