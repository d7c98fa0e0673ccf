//go:build linux

package agent

import (
	"context"
	"errors"
	"fmt"
	"os"
	"reflect"

	"github.com/plx-run/plx/launcher/agent/gpulock"
	"github.com/plx-run/plx/launcher/protocol"
)

// reservation is the place of a launch in the queue for this host's GPUs, and
// the GPU locks that the launch holds. The zero value is in no queue and holds
// no locks.
type reservation struct {
	queue  *gpulock.Queue // place in the queue; nil if the launch is not in the queue
	claims []protocol.Claim
	locks  []*os.File // locks of all claimed GPUs; nil if no lock is held
}

// answer executes a Reserve request of the launch: enter the queue, take the
// locks, release them, or leave the queue.
func (b *reservation) answer(_ context.Context, ask protocol.Reserve) (a protocol.Reservation, err error) {
	if ask.Ask == protocol.ReserveLeave {
		b.leave()
		return a, nil
	}
	if b.queue == nil {
		if b.queue, err = gpulock.Enter(ask.Claims, ask.Ticket); err != nil {
			return a, err
		}
		b.claims = ask.Claims
	}
	switch ask.Ask {
	case protocol.ReserveQueue:
	case protocol.ReserveDrop:
		b.drop()
	case protocol.ReserveTake:
		if b.locks == nil {
			if b.locks, err = gpulock.Take(b.claims, ask.Ticket); heldByOthers(err) {
				a.Cause, err = err.Error(), nil
			}
		}
	default:
		return a, fmt.Errorf("unknown reservation request %q", ask.Ask)
	}
	if err == nil {
		a.Ahead, err = b.queue.Ahead()
	}
	return a, err
}

// heldByOthers reports whether err means that other launches hold the GPU locks or
// are ahead in the queue.
func heldByOthers(err error) bool {
	held, waiting := (*gpulock.Held)(nil), (*gpulock.Waiting)(nil)
	return errors.As(err, &held) || errors.As(err, &waiting)
}

// drop releases the GPU locks, but the launch keeps its place in the queue for
// GPUs.
func (b *reservation) drop() {
	gpulock.Release(b.locks)
	b.locks = nil
}

// leave releases the GPU locks and leaves the queue of launches that wait for
// GPUs.
func (b *reservation) leave() {
	b.drop()
	if b.queue != nil {
		b.queue.Leave()
	}
	b.queue, b.claims = nil, nil
}

// of returns the GPU locks for a job: those already reserved for the job, or
// newly taken ones. The caller must release them.
func (b *reservation) of(spec protocol.Spec) ([]*os.File, error) {
	locks := b.locks
	if locks != nil && reflect.DeepEqual(b.claims, spec.Claims) {
		b.locks = nil
		b.leave()
		return locks, nil
	}
	b.leave()
	locks, err := gpulock.Take(spec.Claims, spec.Ticket)
	if heldByOthers(err) {
		err = fmt.Errorf("%w; a launch with --wait-gpus 30m waits for it", err)
	}
	return locks, err
}
