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

// reservation is the agent of a launch that waits for GPUs or has their locks. The zero value
// waits for none.
type reservation struct {
	queue  *gpulock.Queue // nil: it does not wait
	claims []protocol.Claim
	locks  []*os.File // nil: not held
}

// answer does what the launch asks.
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
			if b.locks, err = gpulock.Take(b.claims, ask.Ticket); others(err) {
				a.Cause, err = err.Error(), nil
			}
		}
	default:
		return a, fmt.Errorf("unknown question %q", ask.Ask)
	}
	if err == nil {
		a.Ahead, err = b.queue.Ahead()
	}
	return a, err
}

// others reports whether locks were not taken because others have them, or come first.
func others(err error) bool {
	held, waiting := (*gpulock.Held)(nil), (*gpulock.Waiting)(nil)
	return errors.As(err, &held) || errors.As(err, &waiting)
}

// drop gives the locks up.
func (b *reservation) drop() {
	gpulock.Release(b.locks)
	b.locks = nil
}

// leave gives all up.
func (b *reservation) leave() {
	b.drop()
	if b.queue != nil {
		b.queue.Leave()
	}
	b.queue, b.claims = nil, nil
}

// of returns the locks of a job's GPUs, which the caller releases: those that are held for it,
// or new ones.
func (b *reservation) of(spec protocol.Spec) ([]*os.File, error) {
	locks := b.locks
	if locks != nil && reflect.DeepEqual(b.claims, spec.Claims) {
		b.locks = nil
		b.leave()
		return locks, nil
	}
	b.leave()
	locks, err := gpulock.Take(spec.Claims, spec.Ticket)
	if others(err) {
		err = fmt.Errorf("%w; a launch with --wait-gpus 30m waits for it", err)
	}
	return locks, err
}
