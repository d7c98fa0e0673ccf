package owner

import (
	"slices"

	"github.com/plx-run/plx/trainer/wire"
)

// successor is an engine that takes another's place, between two steps.
type successor struct {
	*engine
	events []chan event // by rank: where peers hear from it, nil: nowhere
	step   uint64       // the next one
}

// succeed makes room in the engine of an owner for what it will have: pieces
// that stay as they are stay what they are, others begin without any row.
func (e *engine) succeed(d *Declaration, step uint64) (*successor, error) {
	next := &engine{d: d, self: e.self, roster: e.roster, where: map[place]int{}, fail: e.fail, tell: make([]func(event), len(e.tell))}
	for _, p := range d.piecesOf(d.ownerIndex(e.self)) {
		i, known := e.where[place{p.Variable, p.Offset}]
		var s slot
		if known && e.slots[i].piece() == p {
			s = e.slots[i]
		} else {
			var err error
			if s, err = next.newSlot(p, nil); err != nil {
				return nil, err
			}
		}
		next.where[place{p.Variable, p.Offset}] = len(next.slots)
		next.slots = append(next.slots, s)
	}
	next.group()
	for i, g := range next.groups {
		g.step, g.made = step, step
		e.groups[i].mu.Lock()
		g.saved = e.groups[i].saved
		e.groups[i].mu.Unlock()
	}
	return &successor{engine: next, events: make([]chan event, len(e.tell)), step: step}, nil
}

// succeed is told by the engine before, as its last word.
func (w *writer) succeed(next *successor, rank int) {
	w.engine, w.events, w.step = next.engine, next.events[rank], next.step+1
}

// install puts the successor in force and tells the workers that everything
// is where it belongs.
func (s *server) install(m *moving) {
	s.mu.Lock()
	all := slices.Clone(s.peers)
	if m.next != nil {
		s.engine = s.succeed(m.next)
	}
	s.epoch, s.moving = m.epoch, nil
	for rank := range s.steps {
		s.steps[rank] = m.step
	}
	s.mu.Unlock()
	if s.local != nil && m.next != nil {
		s.local.serves.Store(&served{m.next.engine, m.d.piecesOf(s.local.index)})
	}
	for _, p := range all {
		if p != nil {
			p.conn.SetEpoch(m.epoch)
			s.writers.Go(func() { p.moved(m.step) })
		}
	}
	if s.local != nil {
		s.local.moved <- struct{}{}
	}
}

// succeed lets the successor tell everybody whom the engine before it told,
// whose last word that is. It needs s.mu.
func (s *server) succeed(next *successor) *engine {
	for rank, p := range s.peers {
		if p != nil && p.events != nil {
			events := make(chan event, next.engine.events()+4)
			next.events[rank], next.tell[rank] = events, func(e event) { events <- e }
		}
	}
	if s.local != nil {
		next.tell[s.local.client.rank] = s.local.tell
	}
	for rank, events := range next.events {
		if events != nil {
			s.engine.tell[rank](event{next: next}) // there is room: nothing else is on its way
		}
	}
	return next.engine
}

// moved tells the worker that all rows are where they belong.
func (p *peer) moved(step uint64) {
	err := p.conn.Send(wire.Frame{Header: wire.Header{Kind: wire.Moved, Step: step}})
	if err = p.quiet(err); err != nil {
		p.server.lost(p, err)
	}
}
