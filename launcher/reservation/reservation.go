// Package reservation waits for the GPUs of a job and holds them for its agents.
//
//	held, err := reservation.Wait(ctx, reservation.Request{Hosts: wanted, Limit: 30 * time.Minute, ...})
//	defer held.Close()
//
// On each host the agent that waits for the job stands in the queue and takes the locks. A
// launch gets the locks of all its hosts or of none, and never holds some while it waits
// for others, so launches cannot block one another.
//
// Package gpulock of the agent has the locks and the queues. This one knows no GPU.
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

// NewTicket returns a ticket for the queues. Tickets sort by the time at which launches
// began, by the clocks of their machines.
func NewTicket() string {
	return fmt.Sprintf("%013s-%s", strconv.FormatInt(time.Now().UnixNano(), 36), strings.ToLower(rand.Text()[:8]))
}

// Request is what a launch waits for.
type Request struct {
	Hosts   []Host
	Ticket  string
	Limit   time.Duration // how long to wait
	Printer *console.Printer
	// Busy says who uses the GPUs without a reservation, "" if nobody does. It is asked while
	// the locks are held.
	Busy func(context.Context) (string, error)
}

// Host is a host with what the job books there, at least one GPU.
type Host struct {
	Agent  *hosts.AgentHost // which was sent to the host
	Claims []protocol.Claim
}

// Held is the GPUs that are held for the agents. Nil: none are.
type Held struct {
	stop    context.CancelFunc
	keeping sync.WaitGroup
}

// Wait returns after nobody uses the GPUs and their locks are held. It prints the launch's
// place in the queue, and whom it waits for.
func Wait(ctx context.Context, r Request) (*Held, error) {
	var all group
	for _, h := range r.Hosts {
		all = append(all, h.host(r.Ticket))
	}
	_, _, err := all.move(ctx, protocol.ReserveQueue)
	if err == nil {
		err = r.wait(ctx, all)
	}
	if err != nil {
		return nil, err // the agents end with the launch, and give up what they have
	}
	keep, stop := context.WithCancel(context.WithoutCancel(ctx))
	held := &Held{stop: stop}
	held.keeping.Go(func() { all.keep(keep) })
	return held, nil
}

// Times between two attempts. One that got past the queue also has the hosts run
// nvidia-smi.
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

// Close no longer keeps what is held.
func (b *Held) Close() {
	if b == nil {
		return
	}
	b.stop()
	b.keeping.Wait()
}

// group is all hosts of a job with GPUs.
type group []*host

// take takes the locks of all hosts or of none. place is that of this launch in the queue,
// from 1; cause says why it has no locks, "" if it has them or is not the first.
//
// The first host is asked alone: of two launches that want the same hosts, one gets all.
func (all group) take(ctx context.Context) (place int, cause string, err error) {
	ahead, _, err := all.move(ctx, protocol.ReserveQueue)
	if err != nil || len(ahead) > 0 {
		return len(ahead) + 1, "", err
	}
	for _, some := range []group{all[:1], all[1:]} {
		ahead, causes, err := some.move(ctx, protocol.ReserveTake)
		if err != nil || len(causes) > 0 {
			return len(ahead) + 1, strings.Join(causes, "; "), errors.Join(err, all.drop(ctx))
		}
	}
	return 1, "", nil
}

// drop gives the locks up, and leaves the launch in the queue.
func (all group) drop(ctx context.Context) error {
	_, _, err := all.move(ctx, protocol.ReserveDrop)
	return err
}

// move asks all hosts. It returns the tickets of the launches that come first, and why
// hosts did not do it.
func (all group) move(ctx context.Context, ask string) (ahead, causes []string, err error) {
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

// keepEvery is the time between two questions to agents that hold locks: they end if they hear
// nothing for a minute.
const keepEvery = 10 * time.Second

// keep keeps the locks until ctx ends, or the agents have the job.
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
