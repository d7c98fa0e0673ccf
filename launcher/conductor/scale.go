package conductor

import (
	"context"
	"fmt"
	"time"

	"github.com/plx-run/plx/launcher/coordinator"
	"github.com/plx-run/plx/launcher/protocol"
)

// join begins to look after a host that the job may go on with.
func (c *conductor) join(j coordinator.Join) {
	h := Host{Name: j.Joining.Host, Dial: func(context.Context) (*protocol.Conn, error) {
		return nil, fmt.Errorf("%w: it cannot be reached from here", ErrNoAgent)
	}}
	if c.opts.Join != nil {
		h = c.opts.Join(j.Host, j.Joining)
	}
	c.link(j.Host, h)
}

// answer tells who asked for other hosts what came of it, and the user.
func (c *conductor) answer(a coordinator.Answer) {
	s := a.Scaled
	if s.To > 0 && s.Cause == "" {
		s.Pause = time.Since(c.held)
		if c.opts.OnNote != nil {
			c.opts.OnNote(s.String())
		}
	}
	c.links[a.Host].send(protocol.Message{Scaled: &s})
}
