package reservation

import (
	"context"
	"fmt"
	"time"

	"github.com/plx-run/plx/launcher/hosts"
	"github.com/plx-run/plx/launcher/protocol"
)

// host is a host on which a launch books GPUs.
type host struct {
	*hosts.Host
	ask  func(ctx context.Context, ask string) (protocol.Reservation, error)
	keep func(ctx context.Context) // tells the agent that the launch is still there
}

// host returns the host for a launch with the ticket.
func (h Host) host(ticket string) *host {
	call := func(ctx context.Context, ask string, limit time.Duration) (protocol.Reservation, error) {
		a, err := hosts.Call[protocol.Reservation](ctx, h.Agent, limit, protocol.DoReserve, protocol.Reserve{Ask: ask, Ticket: ticket, Claims: h.Claims})
		if err != nil {
			err = fmt.Errorf("book its GPUs: %w", err)
		}
		return a, err
	}
	return &host{Host: h.Agent.Host,
		ask: func(ctx context.Context, ask string) (protocol.Reservation, error) {
			return call(ctx, ask, hosts.AnswerTime)
		},
		keep: func(ctx context.Context) {
			if h.Agent.Waits() {
				_, _ = call(ctx, protocol.ReserveTake, mostBusy) // an agent that has ended is missed when it is to get the job
			}
		}}
}

// mostBusy is how long an agent may do something else before it answers that it keeps GPUs.
const mostBusy = time.Hour
