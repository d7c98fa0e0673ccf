package owner

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/plx-run/plx/trainer/wire"
)

// firstOf is the step that a group begins with, first the one of a worker.
func (d *Declaration) firstOf(group int) uint64 {
	if d.Cut == nil {
		return d.First
	}
	return d.Cut[group]
}

func (d *Declaration) first(rank int) uint64 {
	return d.firstOf(slices.IndexFunc(d.Groups(), func(g Range) bool { return rank < g.Hi }))
}

func (d *Declaration) firsts() (all []uint64) {
	for rank := range d.Workers {
		all = append(all, d.first(rank))
	}
	return all
}

// ahead reports whether a worker begins further ahead of another than is
// allowed: when the checkpoint was made it had finished its step and waited.
func (d *Declaration) ahead(rank int) bool {
	return d.Sync.Mode == Bounded && d.first(rank) > slices.Min(d.firsts())+uint64(d.Sync.Number)
}

// checkCut refuses a cut of other groups than there are.
func (d *Declaration) checkCut() error {
	switch {
	case d.Cut == nil:
		return nil
	case d.Checkpoint == "" || d.Sync.Together() || len(d.Cut) != len(d.Groups()) || d.Cut[0] != d.First:
		return fmt.Errorf("declaration: begins with steps %v, the first with %d, from checkpoint %q, in %d groups with synchronisation %s",
			d.Cut, d.First, d.Checkpoint, len(d.Groups()), d.Sync)
	case slices.Max(d.Cut) > maxFirst:
		return fmt.Errorf("declaration: begins with step %d: want one up to %d", slices.Max(d.Cut), uint64(maxFirst))
	}
	return nil
}

// CutKind says when a cut is made, and what the other workers do meanwhile.
type CutKind uint32

// The kinds of cuts.
const (
	Passing  CutKind = iota // the others go on as soon as it is saved
	Holding                 // they go on when the chief begins its next step, or concludes
	cutKinds                // how many there are
)

// Cut asks all owners for a cut, which Save is to follow soon: how many steps of
// each group of workers will be in the copies of all owners, and none behind
// them. The first is the group of the chief, who calls it between two steps.
// What others bring for later steps waits until it is saved. Where workers are in
// step there is nothing to ask, and it returns nil.
func (c *Client) Cut(ctx context.Context, kind CutKind) ([]uint64, error) {
	if c.d.Sync.Together() {
		return nil, c.savable()
	}
	if err := c.savable(); err != nil {
		return nil, err
	}
	if c.cut != nil {
		return nil, fmt.Errorf("asked for two cuts before step %d", c.step)
	}
	if err := c.tellOwners(wire.Frame{Header: wire.Header{Kind: wire.Cut, Step: c.step, Part: uint32(kind)}}); err != nil {
		return nil, err
	}
	cut, owns := make([]uint64, len(c.d.Groups())), c.layout.Load().owns
	for i, l := range c.links {
		if !owns[i] {
			continue
		}
		select {
		case has := <-l.cuts:
			for g := range cut {
				cut[g] = max(cut[g], has[g])
			}
		case <-c.failed:
			return nil, c.hangUp()
		case <-ctx.Done():
			c.fail(context.Cause(ctx))
			return nil, c.hangUp()
		}
	}
	c.cut, c.holds = cut, kind == Holding
	return slices.Clone(cut), nil
}

// encodeCut is nil for no cut.
func encodeCut(cut []uint64) (b []byte) {
	for _, steps := range cut {
		b = binary.LittleEndian.AppendUint64(b, steps)
	}
	return b
}

// readCut reads the payload of a frame, of which h is the header.
func (d *Declaration) readCut(h wire.Header, conn *wire.Conn) ([]uint64, error) {
	n := len(d.Groups())
	if h.Length != uint64(8*n) {
		return nil, fmt.Errorf("%s frame of %d bytes, want %d for %d groups", h.Kind, h.Length, 8*n, n)
	}
	b := make([]byte, 8*n)
	if err := conn.Payload(b); err != nil {
		return nil, err
	}
	cut := make([]uint64, n)
	for i := range cut {
		if cut[i] = binary.LittleEndian.Uint64(b[8*i:]); cut[i] > maxFirst {
			return nil, fmt.Errorf("%s frame with %d steps of a group", h.Kind, cut[i])
		}
	}
	return cut, nil
}

// cut takes an owner's answer.
func (l *link) cut(h wire.Header) error {
	if l.index < 0 || l.client.d.Sync.Together() {
		return fmt.Errorf("unexpected %s frame", h.Kind)
	}
	has, err := l.client.d.readCut(h, l.conn)
	if err != nil {
		return err
	}
	select {
	case l.cuts <- has:
		return nil
	default:
		return errors.New("said twice what is in a cut")
	}
}

// askCut answers the chief how far everybody is, once the cut before is saved.
func (p *peer) askCut(h wire.Header) error {
	s, e := p.server, p.server.engine
	if !p.task.IsChief() || e.barrier == nil || h.Part >= uint32(cutKinds) || p.unfinished() {
		return fmt.Errorf("unexpected %s frame of kind %d", h.Kind, h.Part)
	}
	p.goOn()
	select {
	case <-p.copied:
		return e.sayCut()
	default:
		before := p.copied
		s.writers.Go(func() { s.sayCutAfter(p, before) })
		return nil
	}
}

func (s *server) sayCutAfter(chief *peer, before <-chan struct{}) {
	select {
	case <-before:
	case <-s.ended:
		return
	}
	if err := s.engine.sayCut(); err != nil {
		s.lost(chief, err)
	}
}

func (e *engine) sayCut() error {
	has, err := e.barrier.freeze()
	if err != nil {
		return err
	}
	e.tell[0](event{say: &wire.Frame{Header: wire.Header{Kind: wire.Cut}, Payload: encodeCut(has)}})
	return nil
}

// saveCut takes the cut, and saves once all before it is there.
func (p *peer) saveCut(h wire.Header) error {
	s, e := p.server, p.server.engine
	if h.Part > 1 || p.unfinished() {
		return fmt.Errorf("%s frame of kind %d, with %d gradients to come", h.Kind, h.Part, p.need)
	}
	cut, err := e.d.readCut(h, p.conn)
	if err != nil {
		return err
	}
	p.holds = h.Part == 1
	if err := e.barrier.agree(cut, p.holds); err != nil {
		return err
	}
	copied := make(chan struct{})
	p.copied = copied
	s.writers.Go(func() {
		defer close(copied)
		s.copyCut(e, cut[0], h.Offset)
	})
	return nil
}

func (s *server) copyCut(e *engine, step, number uint64) {
	for e.barrier.run(); ; {
		var err error
		if e.barrier.copy(func(since time.Time) { err = s.save(e, step, number, since) }) {
			e.barrier.run()
			if err != nil {
				s.end(s.own(err))
			}
			return
		}
		select {
		case <-e.barrier.moved:
		case <-s.ended:
			return
		}
	}
}

// goOn ends the pause of a cut that held the others.
func (p *peer) goOn() {
	if p.holds {
		p.holds = false
		p.server.engine.barrier.goOn()
	}
}
