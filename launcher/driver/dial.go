package driver

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"strings"
	"time"

	"github.com/plx-run/plx/launcher/jobstate"
	"github.com/plx-run/plx/launcher/protocol"
)

// errNoConnection is the cause of an attempt to connect that took too long.
var errNoConnection = errors.New("no connection in time")

// live dials the agent, serves the connection, and dials again whenever it is lost.
// It returns nil when the agent has ended, and an error when the agent is lost: not
// heard for a lease, or gone. conn is a connection to begin with; nil is none.
func (c *contact) live(ctx context.Context, conn *protocol.Conn) error {
	var first error // why the first connection was lost
	for reported := false; ; conn = nil {
		connected, err := c.connect(ctx, conn)
		switch {
		case ctx.Err() != nil:
			return ctx.Err()
		case err == nil && c.ended():
			return nil
		case errors.Is(err, ErrNoAgent):
			return c.neverStarted(err, first)
		case c.hearing.left() <= 0:
			return fmt.Errorf("not heard for %s: %s", c.hearing.patience(), cause(err))
		}
		if connected || !reported {
			c.deliver(jobstate.Silent{Host: c.index, Cause: cause(err)})
			reported = true
		}
		if first == nil {
			first = err
		}
		pause(ctx, min(c.lease/30, time.Second))
	}
}

// connect dials, unless there is a connection, and serves the connection until it
// ends. A nil error means that the agent has closed it.
func (c *contact) connect(ctx context.Context, conn *protocol.Conn) (connected bool, err error) {
	if conn == nil {
		dialling, cancel := context.WithTimeoutCause(ctx, max(c.hearing.left(), time.Second), errNoConnection)
		defer cancel()
		if conn, err = c.host.Agent.Dial(dialling); err != nil {
			return false, err
		}
	}
	return true, c.serve(ctx, conn)
}

// neverStarted adds to the end of an agent that has never answered what it said
// when it could not start: on a full disk nothing else is known of it.
func (c *contact) neverStarted(end, first error) error {
	if c.hearing.hasMet() || first == nil || strings.Contains(first.Error(), strings.TrimPrefix(end.Error(), ErrNoAgent.Error()+": ")) {
		return end
	}
	return fmt.Errorf("%w; when it was started: %w", end, first)
}

// cause is why a connection was lost.
func cause(err error) string {
	if err == nil {
		return "the agent closed it"
	}
	return err.Error()
}

// pause waits about d. It varies d, so that many hosts are not dialled in step.
func pause(ctx context.Context, d time.Duration) {
	select {
	case <-ctx.Done():
	case <-time.After(d/2 + rand.N(d)):
	}
}
