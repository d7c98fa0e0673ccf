package exchange

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"slices"

	"github.com/plx-run/plx/trainer/layout"
	"github.com/plx-run/plx/trainer/wire"
)

// CutKind says when a cut is made, and what the other workers do meanwhile.
type CutKind uint32

// The kinds of cuts.
const (
	Passing  CutKind = iota // the others go on as soon as it is saved
	Holding                 // they go on when the chief begins its next step, or concludes
	cutKinds                // how many there are
)

// Cut asks all holders for a cut, which Save is to follow soon: how many steps of
// each group of workers will be in the copies of all holders, and none behind
// them. The first is the group of the chief, who calls it between two steps.
// What others bring for later steps waits until it is saved. Where workers are in
// step there is nothing to ask, and it returns nil.
func (c *Client) Cut(ctx context.Context, kind CutKind) ([]uint64, error) {
	if !c.d.Sync.Cuts() {
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
	cut, owns := make([]uint64, len(c.d.Groups())), c.shards.Load().owns
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
func readCut(d *layout.Declaration, h wire.Header, conn *wire.Conn) ([]uint64, error) {
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
		if cut[i] = binary.LittleEndian.Uint64(b[8*i:]); cut[i] > layout.MaxFirst {
			return nil, fmt.Errorf("%s frame with %d steps of a group", h.Kind, cut[i])
		}
	}
	return cut, nil
}

// cut takes a holder's answer.
func (l *link) cut(h wire.Header) error {
	if l.index < 0 || !l.client.d.Sync.Cuts() {
		return fmt.Errorf("unexpected %s frame", h.Kind)
	}
	has, err := readCut(l.client.d, h, l.conn)
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
	s, e := p.server, p.server.shards
	if !p.task.IsChief() || e.Alignment() == nil || h.Part >= uint32(cutKinds) || p.unfinished() {
		return fmt.Errorf("unexpected %s frame of kind %d", h.Kind, h.Part)
	}
	p.goOn()
	select {
	case <-p.copied:
		return s.sayCut()
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
	if err := s.sayCut(); err != nil {
		s.lost(chief, err)
	}
}

func (s *server) sayCut() error {
	has, err := s.shards.Alignment().Freeze()
	if err != nil {
		return err
	}
	s.members.Tell(0, sends{Header: wire.Header{Kind: wire.Cut}, Payload: encodeCut(has)})
	return nil
}

// saveCut takes the cut, and saves once all before it is there.
func (p *peer) saveCut(h wire.Header) error {
	s, e := p.server, p.server.shards
	if h.Part > 1 || p.unfinished() {
		return fmt.Errorf("%s frame of kind %d, with %d gradients to come", h.Kind, h.Part, p.need)
	}
	cut, err := readCut(e.Declaration(), h, p.conn)
	if err != nil {
		return err
	}
	p.holds = h.Part == 1
	if err := e.Alignment().Agree(cut, p.holds); err != nil {
		return err
	}
	copied := make(chan struct{})
	p.copied = copied
	s.writers.Go(func() {
		defer close(copied)
		ctx, cancel := s.untilEnd()
		defer cancel()
		if err := s.save(ctx, e, cut[0], h.Offset); err != nil {
			s.end(err)
		}
	})
	return nil
}

// goOn ends the pause of a cut that held the others.
func (p *peer) goOn() {
	if p.holds {
		p.holds = false
		p.server.shards.Alignment().GoOn()
	}
}
