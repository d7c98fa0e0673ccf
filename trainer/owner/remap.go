package owner

import (
	"encoding/json"
	"fmt"
	"slices"

	"github.com/plx-run/plx/trainer/wire"
)

// remap is what every worker tells every owner, between two steps, where
// variables are to move: JSON.
type remap struct {
	Epoch  uint32  `json:"epoch"` // of the new map
	Step   uint64  `json:"step"`  // the first under it
	Pieces []Piece `json:"pieces"`
}

// timely refuses what a worker must not send while variables move, and what
// it sends with another map in mind.
func (p *peer) timely(h wire.Header) error {
	s := p.server
	s.mu.Lock()
	defer s.mu.Unlock()
	m := s.moving
	switch {
	case h.Epoch != p.epoch:
		return fmt.Errorf("%s frame of epoch %d, this is epoch %d", h.Kind, h.Epoch, p.epoch)
	case m == nil || m.count == 0:
	case m.asked[p.task.Index]:
		return fmt.Errorf("%s frame while variables move", h.Kind)
	case h.Kind == wire.Step || h.Kind == wire.Bye:
		return fmt.Errorf("%s frame, but %s wants variables to move before step %d", h.Kind, worker(m.first), m.step)
	}
	return nil
}

// remap takes a worker's word of who is to own what from the next step on.
func (p *peer) remap(h wire.Header) error {
	body, err := p.body(h)
	if err != nil {
		return err
	}
	var r remap
	if err := json.Unmarshal(body, &r); err != nil {
		return fmt.Errorf("new owners: %w", err)
	}
	e := p.server.engine
	follows := p.events == nil || len(e.slots) == 0 // it is not told of steps
	if p.need > 0 || r.Step < p.step || r.Step > p.step && !follows {
		return fmt.Errorf("wants variables to move before step %d, during step %d with %d gradients to come", r.Step, p.step, p.need)
	}
	p.epoch, p.step, p.got = r.Epoch, r.Step, nil
	return p.server.remap(p.task.Index, &r)
}

// body reads JSON that is as long as a declaration at most.
func (p *peer) body(h wire.Header) ([]byte, error) {
	if h.Length > maxDeclaration {
		return nil, fmt.Errorf("%s frame of %d bytes, want at most %d", h.Kind, h.Length, maxDeclaration)
	}
	body := make([]byte, h.Length)
	return body, p.conn.Payload(body)
}

// remap notes what a worker wants. Once all of them want the same, it is done.
func (s *server) remap(rank int, r *remap) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	m := s.underWay()
	switch {
	case r.Epoch != m.epoch || m.asked[rank]:
		return fmt.Errorf("wants variables to move for epoch %d, this is epoch %d", r.Epoch, s.epoch)
	case m.count == 0:
		d, err := s.engine.d.placed(r.Pieces)
		if err != nil {
			return err
		}
		m.d, m.step, m.first = d, r.Step, rank
	case r.Step != m.step || !slices.Equal(r.Pieces, m.d.Pieces):
		return s.blame(rank, fmt.Errorf("wants other owners before step %d than %s before step %d", r.Step, worker(m.first), m.step))
	}
	for other, n := range s.steps {
		if n > r.Step || s.gone[other] {
			return s.blame(other, fmt.Errorf("goes on after %d steps, but %s wants variables to move before step %d", n, worker(rank), r.Step))
		}
	}
	if relay := s.engine.relay; relay != nil {
		relay.union.begin(rank, r.Step) // whoever waits for its wants must not
	}
	m.asked[rank] = true
	if m.count++; m.count == s.ranks.Len() && !s.closing {
		s.writers.Go(m.run)
	}
	return nil
}

// underWay returns the move to the next map. It needs s.mu.
func (s *server) underWay() *moving {
	if s.moving == nil {
		s.moving = newMoving(s)
	}
	return s.moving
}
