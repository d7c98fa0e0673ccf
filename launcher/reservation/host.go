package reservation

import (
	"context"
	"fmt"
	"time"

	"github.com/plx-run/plx/launcher/hosts"
	"github.com/plx-run/plx/launcher/protocol"
)

// host is a host on which a launch reserves GPUs.
type host struct {
	*hosts.Host
	ask  func(ctx context.Context, ask string) (protocol.Reservation, error)
	keep func(ctx context.Context) // tells the agent that the launch is still running
}

// host returns h with functions that send requests to its agent. ticket is the
// launch's position in the queue for GPUs.
func (h Host) host(ticket string) *host {
	call := func(ctx context.Context, ask string, limit time.Duration) (protocol.Reservation, error) {
		a, err := hosts.Call[protocol.Reservation](ctx, h.Agent, limit, protocol.DoReserve, protocol.Reserve{Ask: ask, Ticket: ticket, Claims: h.Claims})
		if err != nil {
			err = fmt.Errorf("reserve its GPUs: %w", err)
		}
		return a, err
	}
	return &host{Host: h.Agent.Host,
		ask: func(ctx context.Context, ask string) (protocol.Reservation, error) {
			return call(ctx, ask, hosts.AnswerTime)
		},
		keep: func(ctx context.Context) {
			if h.Agent.HasIdleAgent() {
				// Ignore the error: if the agent has ended, sending the job to
				// it will fail.
				_, _ = call(ctx, protocol.ReserveTake, maxBusy)
			}
		}}
}

// maxBusy is how long an agent may be busy with other requests before it
// replies that it got the message of the function keep.
const maxBusy = time.Hour
