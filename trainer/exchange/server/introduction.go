package server

import (
	"errors"
	"fmt"
	"time"

	"github.com/plx-run/plx/trainer/aggregate"
	"github.com/plx-run/plx/trainer/exchange/message"
	"github.com/plx-run/plx/trainer/layout"
	"github.com/plx-run/plx/trainer/peers"
	"github.com/plx-run/plx/trainer/wire"
)

var (
	errUnsaid  = errors.New("hung up before it said anything")
	errUseless = errors.New("the chief has no use for this task")
)

// start reads the declaration and, from the chief, the first values; filled:
// they came. The error is errUnsaid if the connection ended before anything was
// said.
func (p *peer) start() (filled bool, err error) {
	h, err := p.next()
	if lost := peers.Lost(err); err != nil && lost.Error() != err.Error() {
		return false, fmt.Errorf("%w: %w", errUnsaid, lost)
	}
	if err != nil {
		return false, err
	}
	d, err := p.declaration(h)
	if err != nil {
		return false, err
	}
	p.session.SetSilence(d.Silence())
	if err := p.server.declare(p.rank, d); err != nil {
		return false, err
	}
	p.introduced()
	p.step = contribution{rank: p.rank, begun: d.FirstStep(p.rank), ahead: d.StartsAhead(p.rank)}
	if p.chief != nil && d.Checkpoint == "" {
		return true, p.fill(p.server.Shards())
	}
	return false, nil
}

// declaration reads the rest of the frame that h begins.
func (p *peer) declaration(h wire.Header) (*layout.Declaration, error) {
	if h.Kind != wire.Declare || h.Length > message.MaxDeclaration {
		return nil, fmt.Errorf("%s frame of %d bytes where a declaration was due", h.Kind, h.Length)
	}
	var d layout.Declaration
	return &d, p.readJSON(h, &d)
}

// difference is why a worker comes to a server that the chief had no use for, or
// to the first worker of a host that is not its own: they declare different
// things. Without a declaration in time it is why.
func (p *peer) difference(why error) error {
	p.server.mu.Lock()
	holds, of := p.server.roll.misled(p.server.local.Relay != nil)
	p.server.mu.Unlock()
	if holds == nil {
		return why
	}
	defer time.AfterFunc(message.Farewell, func() { p.session.Close() }).Stop()
	h, err := p.next()
	if err != nil {
		return why
	}
	d, err := p.declaration(h)
	if err != nil || holds.Difference(d) == "" {
		return why
	}
	return p.session.Blame(fmt.Errorf("declares something else than %s: %s", of, holds.Difference(d)))
}

// introduced notes that the peer has declared what the chief did, or that the
// training has ended because of it. Only the reader calls it.
func (p *peer) introduced() {
	select {
	case <-p.known:
	default:
		close(p.known)
	}
}

// dismissed ends a server that the chief has no use for.
func (p *peer) dismissed() error {
	if err := p.session.Bye(); err != nil {
		return err
	}
	p.session.Drain()
	p.server.connected.hearOut(p)
	p.server.End(nil)
	return nil
}

// fill reads the chief's first values, one frame per dense piece in any order.
func (p *peer) fill(e *aggregate.Shards) error {
	left := 0
	for _, s := range e.All() {
		if s.Variable != e.Declaration().LossIndex() && s.RowBytes() == 0 {
			left++
		}
	}
	for got := map[int]bool{}; len(got) < left; {
		h, err := p.next()
		if err != nil {
			return err
		}
		i, err := find(e, h, wire.Initial)
		if err != nil {
			return err
		}
		into := e.All()[i].Value(-1)
		if got[i] || len(into) == 0 || h.Length != uint64(len(into)) {
			return fmt.Errorf("first values of variable %d of %d bytes, want %d, once", h.Variable, h.Length, len(into))
		}
		got[i] = true
		if err := p.session.Payload(into); err != nil {
			return err
		}
	}
	return nil
}
