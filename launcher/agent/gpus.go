//go:build linux

package agent

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"time"

	"github.com/plx-run/plx/launcher/agent/gpulock"
	"github.com/plx-run/plx/launcher/agent/sockets"
	"github.com/plx-run/plx/launcher/protocol"
)

// takeGPUs takes the locks of the host's GPUs, or takes them over from "agent gpus".
func takeGPUs(ctx context.Context, spec protocol.Spec) ([]*os.File, error) {
	if spec.Booked == "" {
		return gpulock.Take(spec.Claims, spec.Ticket)
	}
	ctx, cancel := context.WithTimeout(ctx, sockets.Greeting)
	defer cancel()
	conn, err := sockets.DialLocal(ctx, spec.Booked)
	if err != nil { // it was handed over before, or has ended
		return gpulock.Take(spec.Claims, spec.Ticket)
	}
	defer conn.Close() // only read
	if err := conn.SetDeadline(time.Now().Add(sockets.Greeting)); err != nil {
		return nil, err
	}
	return gpulock.Receive(conn)
}

// silence is how long "agent gpus" holds anything without hearing the launch.
const silence = time.Minute

// bookGPUs is "agent gpus": it waits in the queues for GPUs and holds their locks until
// "agent start" takes them over. It answers each protocol.Booking with a
// protocol.BookingAnswer. It ends when its input ends, is silent for a minute, or the
// locks were taken over.
func bookGPUs(_ context.Context, args []string, std streams) error {
	if len(args) != 0 {
		return usage("gpus takes no arguments")
	}
	asked, failed := make(chan protocol.Booking), make(chan error, 1)
	go func() { // ends with the process
		lines := json.NewDecoder(io.LimitReader(std.in, mostAsked))
		for {
			var b protocol.Booking
			if err := lines.Decode(&b); err != nil {
				failed <- err
				return
			}
			asked <- b
		}
	}()
	var b booking
	out := json.NewEncoder(std.out)
	for {
		select {
		case ask := <-asked:
			answer, err := b.answer(ask)
			if err == nil {
				err = out.Encode(answer)
			}
			if err != nil {
				return err
			}
		case err := <-failed:
			if errors.Is(err, io.EOF) {
				return nil
			}
			return fmt.Errorf("read what is asked of GPUs: %w", err)
		case err := <-b.given:
			return err
		case <-time.After(silence):
			return fmt.Errorf("the launch was not heard for %s", silence)
		}
	}
}

// mostAsked bounds what "agent gpus" reads in its life, in bytes: a question each second
// for a month.
const mostAsked = 1 << 30

// booking is a launch that waits for GPUs or has their locks.
type booking struct {
	first  protocol.Booking // the first that was asked
	queue  *gpulock.Queue   // nil before the first question
	locks  []*os.File       // nil: not held
	server *net.UnixListener
	socket string     // where the locks can be taken over; "": they are not held
	given  chan error // gets one value after the locks were taken over; nil: they are not held
}

func (b *booking) answer(ask protocol.Booking) (a protocol.BookingAnswer, err error) {
	if b.queue == nil {
		b.first = ask
		if b.queue, err = gpulock.Enter(ask.Claims, ask.Ticket); err != nil {
			return a, err
		}
	}
	switch ask.Ask {
	case protocol.BookingQueue:
	case protocol.BookingDrop:
		b.drop()
	case protocol.BookingTake:
		if b.locks == nil {
			a.Cause, err = b.take()
		}
	default:
		return a, fmt.Errorf("unknown question %q", ask.Ask)
	}
	if err == nil {
		a.Ahead, err = b.queue.Ahead()
	}
	a.Socket = b.socket
	return a, err
}

// take takes the locks. cause says why others have them.
func (b *booking) take() (cause string, err error) {
	b.locks, err = gpulock.Take(b.first.Claims, b.first.Ticket)
	held, waiting := (*gpulock.Held)(nil), (*gpulock.Waiting)(nil)
	if errors.As(err, &held) || errors.As(err, &waiting) {
		return err.Error(), nil
	}
	if err != nil {
		return "", err
	}
	return "", b.offer()
}

// drop gives the locks up.
func (b *booking) drop() {
	gpulock.Release(b.locks)
	if b.server != nil {
		b.server.Close() // whoever dials it finds none
	}
	b.locks, b.server, b.socket, b.given = nil, nil, "", nil
}

// offer lets the next process of this user that dials the socket have the locks.
func (b *booking) offer() (err error) {
	if b.server, b.socket, err = sockets.ListenLocal(); err != nil {
		return err
	}
	given, server, locks := make(chan error, 1), b.server, b.locks
	b.given = given
	go func() {
		for {
			conn, err := server.AcceptUnix()
			if err != nil {
				return // dropped
			}
			if sockets.SameUser(conn) != nil {
				conn.Close() // nothing was written to it
				continue
			}
			given <- errors.Join(gpulock.Send(conn, locks), conn.Close())
			return
		}
	}()
	return nil
}
