package exchange

import (
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/plx-run/plx/trainer/aggregate"
	"github.com/plx-run/plx/trainer/cluster"
	"github.com/plx-run/plx/trainer/layout"
	"github.com/plx-run/plx/trainer/peers"
	"github.com/plx-run/plx/trainer/wire"
)

// errUnsaid ends a connection on which nothing was said.
var errUnsaid = errors.New("hung up before it said anything")

// start reads the declaration and, from the chief, the first values.
func (p *peer) start() error {
	h, err := p.conn.Next()
	if lost := peers.Lost(err); err != nil && lost.Error() != err.Error() {
		return fmt.Errorf("%w: %w", errUnsaid, lost)
	}
	if err != nil {
		return err
	}
	if h.Kind == wire.Error {
		return p.leaves(h)
	}
	d, err := p.declaration(h)
	if err != nil {
		return err
	}
	if err := p.server.declare(p, d); err != nil {
		if errors.Is(err, errNothing) {
			return p.dismissed()
		}
		return err
	}
	p.introduced()
	p.step, p.ahead = d.FirstStep(p.task.Index), d.StartsAhead(p.task.Index)
	if p.task.IsChief() && d.Checkpoint == "" {
		return p.fill()
	}
	return nil
}

// declaration reads the rest of the frame that h begins.
func (p *peer) declaration(h wire.Header) (*layout.Declaration, error) {
	if h.Kind != wire.Declare || h.Length > maxDeclaration {
		return nil, fmt.Errorf("%s frame of %d bytes where a declaration was due", h.Kind, h.Length)
	}
	body := make([]byte, h.Length)
	if err := p.conn.Payload(body); err != nil {
		return nil, err
	}
	var d layout.Declaration
	if err := json.Unmarshal(body, &d); err != nil {
		return nil, fmt.Errorf("declaration: %w", err)
	}
	return &d, nil
}

// odd is why a worker comes to a server that the chief had no use for, or to
// the first worker of a host that is not its own: they declare different
// things. Without a declaration in time it is why.
func (p *peer) odd(why error) error {
	s := p.server
	s.mu.Lock()
	said, of := s.declared[0], cluster.Chief
	if s.shards != nil && s.relay != nil {
		said, of = s.declared[s.self.Index], s.self // the chief does not come here
	} else if said != nil && said.HolderIndex(s.self) >= 0 {
		said = nil
	}
	s.mu.Unlock()
	if said == nil {
		return why
	}
	hangUp := time.AfterFunc(farewell, p.cut)
	defer hangUp.Stop()
	h, err := p.conn.Next()
	if err != nil {
		return why
	}
	d, err := p.declaration(h)
	if err != nil || said.Difference(d) == "" {
		return why
	}
	return &peers.PeerError{Task: p.task, Addr: p.addr,
		Err: fmt.Errorf("declares something else than %s: %s", of, said.Difference(d))}
}

// introduced notes that the peer has declared what the chief did, or that the
// training has ended because of it. Only serve's goroutine calls it.
func (p *peer) introduced() {
	select {
	case <-p.known:
	default:
		close(p.known)
	}
}

// dismissed ends a server that the chief has no use for.
func (p *peer) dismissed() error {
	if err := p.conn.Send(wire.Frame{Header: wire.Header{Kind: wire.Bye}}); err != nil {
		return err
	}
	p.conn.Drain()
	p.server.hearOut(p)
	p.server.end(nil)
	return nil
}

// hearOut gives workers that are here a moment to declare. They take this
// task for a holder and the chief does not, so the difference is the reason
// why there will be no training.
func (s *server) hearOut(chief *peer) {
	timer := time.NewTimer(farewell)
	defer timer.Stop()
	s.mu.Lock()
	s.closing = true // who comes now is told the difference by odd
	others := slices.Clone(s.peers)
	s.mu.Unlock()
	for _, p := range others {
		if p == nil || p == chief {
			continue
		}
		select {
		case <-p.known:
		case <-timer.C:
			return
		}
	}
}

// fill reads the chief's first values, one frame per dense piece in any order.
func (p *peer) fill() error {
	s := p.server
	got := map[int]bool{}
	for range filled(s.shards) {
		h, err := p.conn.Next()
		if err != nil {
			return err
		}
		if h.Kind == wire.Error {
			return p.leaves(h)
		}
		i, err := find(s.shards, h, wire.Initial)
		if err != nil {
			return err
		}
		into := s.shards.All()[i].Value(-1)
		if got[i] || len(into) == 0 || h.Length != uint64(len(into)) {
			return fmt.Errorf("first values of variable %d of %d bytes, want %d, once", h.Variable, h.Length, len(into))
		}
		got[i] = true
		if err := p.conn.Payload(into); err != nil {
			return err
		}
	}
	s.mu.Lock()
	s.filled = true
	s.mu.Unlock()
	return nil
}

// filled is how many pieces the chief sends first values of.
func filled(e *aggregate.Shards) (n int) {
	for _, s := range e.All() {
		if s.Variable != e.Declaration().LossIndex() && s.RowBytes() == 0 {
			n++
		}
	}
	return n
}

// find returns the number of the shard that a frame is for.
func find(e *aggregate.Shards, h wire.Header, want wire.Kind) (int, error) {
	if h.Kind != want {
		return 0, fmt.Errorf("%s frame where %s was due", h.Kind, want)
	}
	i, ok := e.Find(layout.Place{Variable: int(h.Variable), Offset: int(h.Offset)})
	if !ok {
		return 0, fmt.Errorf("%s frame for variable %d from element %d, which is not kept here", h.Kind, h.Variable, h.Offset)
	}
	return i, nil
}
