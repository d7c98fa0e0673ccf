package hosts

import (
	"context"
	"fmt"

	"github.com/plx-run/plx/launcher/protocol"
)

// Use returns the CPU, memory and GPU utilization of the host. The idle agent
// takes samples from the first call until the agent ends, so later calls
// return more samples.
func (a *AgentHost) Use(ctx context.Context) (protocol.HostUse, error) {
	use, err := Call[protocol.HostUse](ctx, a, AnswerTime, protocol.DoUse, struct{}{})
	if err != nil {
		return use, fmt.Errorf("read its utilization: %w", err)
	}
	return use.Bounded(), nil
}

// Visitor asks a job's agent (plx's process on the host) repeatedly what the
// job does there. It does not renew the lease, without which the agent would
// end the tasks. It must not be used by two goroutines at once.
type Visitor struct {
	conn  *protocol.Conn
	state protocol.State // newest state that the agent has sent
	looks int            // number of calls of Poll so far; each call uses it as the ID of its request
}

// Visitor connects to the job's agent (plx's process on the host). The caller
// must call Close.
func (a *AgentHost) Visitor(ctx context.Context) (*Visitor, error) {
	conn, err := a.Visit(ctx)
	return &Visitor{conn: conn}, err
}

// Poll asks the agent what the job's tasks do. It also returns the newest
// state that the agent has sent. After an error, only Close may be called.
func (v *Visitor) Poll(ctx context.Context, m protocol.ActivityRequest) (protocol.State, protocol.ActivityReport, error) {
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
	return v.state, protocol.ActivityReport{}, err
}

// Close closes the connection to the agent.
func (v *Visitor) Close() error { return v.conn.Close() }
