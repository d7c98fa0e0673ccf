package hosts

import (
	"context"
	"fmt"

	"github.com/plx-run/plx/launcher/protocol"
)

// Use returns how much of a host is used, on which an agent waits. That one takes samples from the first call
// on, until it ends: later calls return more of them.
func (a *AgentHost) Use(ctx context.Context) (protocol.HostUse, error) {
	use, err := Call[protocol.HostUse](ctx, a, AnswerTime, protocol.DoUse, struct{}{})
	if err != nil {
		return use, fmt.Errorf("ask how much of it is used: %w", err)
	}
	return use.Bounded(), nil
}

// Visitor looks at what a job does on a host. It does not renew the lease. One goroutine at a time uses it.
type Visitor struct {
	conn  *protocol.Conn
	state protocol.State // newest
	looks int            // so far
}

// Visitor connects to the agent of the job, as Visit does, until Close.
func (a *AgentHost) Visitor(ctx context.Context) (*Visitor, error) {
	conn, err := a.Visit(ctx)
	return &Visitor{conn: conn}, err
}

// Look asks what the tasks do, and returns the agent's state too. After an error the Visitor can only be closed.
func (v *Visitor) Look(ctx context.Context, m protocol.Look) (protocol.State, protocol.Seen, error) {
	defer context.AfterFunc(ctx, func() { v.conn.Close() })()
	v.looks++
	m.ID = v.looks
	err := v.conn.Send(protocol.Message{Look: &m})
	for err == nil {
		var answer protocol.Message
		answer, err = v.conn.Receive()
		switch {
		case err != nil:
		case answer.State != nil:
			v.state = *answer.State
		case answer.Seen != nil && answer.Seen.ID == m.ID:
			if use := answer.Seen.Host; use != nil {
				bounded := use.Bounded()
				answer.Seen.Host = &bounded
			}
			return v.state, *answer.Seen, nil
		}
	}
	if ctx.Err() != nil {
		err = context.Cause(ctx)
	}
	return v.state, protocol.Seen{}, err
}

// Close ends the visit.
func (v *Visitor) Close() error { return v.conn.Close() }
