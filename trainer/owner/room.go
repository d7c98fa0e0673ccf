package owner

import (
	"context"
	"encoding/binary"
	"encoding/json"
	"fmt"
	"math"
	"net"
	"runtime/debug"

	"github.com/plx-run/plx/trainer/cluster"
	"github.com/plx-run/plx/trainer/wire"
)

// RoomError says that an owner's host has not the memory for what is to move
// to the owners on it.
type RoomError struct {
	Owner      cluster.Task
	Need, Free uint64 // bytes
}

func (e *RoomError) Error() string {
	return fmt.Sprintf("%s has no room for what is to move to its host: that takes up to %d MiB, %d MiB are free",
		e.Owner, e.Need>>20, e.Free>>20)
}

// headroom is what Room leaves free: a tenth. Repartition then finds room
// also when there is a little less of it.
const headroom = 10

// Room asks every owner whether it could hold its share of pieces beside what
// it has now; a [*RoomError] names the first that could not. Any one worker
// may ask, between two steps. Counted are new pieces once every row of them
// was updated; those that stay as they are cost nothing.
func (c *Client) Room(ctx context.Context, pieces []Piece) error {
	if err := c.working(); err != nil {
		return err
	}
	now := c.layout.Load().d
	d, err := now.placed(pieces)
	if err != nil {
		return err
	}
	body, err := json.Marshal(d.Pieces)
	if err != nil {
		return fmt.Errorf("new owners: %w", err)
	}
	for _, l := range c.links {
		if l != nil {
			l.roomAsked.Store(true)
			l.running.Go(func() { l.sendFailed(l.conn.Send(wire.Frame{Header: wire.Header{Kind: wire.Room}, Payload: body})) })
		}
	}
	var full error
	for _, l := range c.links {
		var r RoomError
		if l == nil {
			r.Owner = c.config.Peers.Self
			r.Need, r.Free = c.local.server.roomFor(now, d)
		} else if r, err = l.awaitRoom(ctx); err != nil {
			return err
		}
		if full == nil && r.Need > r.Free-r.Free/headroom {
			full = &r
		}
	}
	return full
}

func (l *link) awaitRoom(ctx context.Context) (RoomError, error) {
	select {
	case r := <-l.rooms:
		return r, nil
	case <-l.client.failed:
	case <-ctx.Done():
		l.client.fail(context.Cause(ctx))
	}
	return RoomError{}, l.client.hangUp()
}

// roomSize is the payload of an owner's answer: bytes needed u64, free u64.
const roomSize = 16

// room answers whether what a worker has in mind could be here.
func (p *peer) room(h wire.Header) error {
	e := p.server.engine
	if e.relay != nil {
		return fmt.Errorf("unexpected %s frame", h.Kind)
	}
	body, err := p.body(h)
	if err != nil {
		return err
	}
	var pieces []Piece
	if err := json.Unmarshal(body, &pieces); err != nil {
		return fmt.Errorf("asks for room: %w", err)
	}
	d, err := e.d.placed(pieces)
	if err != nil {
		return fmt.Errorf("asks for room: %w", err)
	}
	need, free := p.server.roomFor(e.d, d)
	answer := binary.LittleEndian.AppendUint64(nil, need)
	return p.conn.Send(wire.Frame{Header: wire.Header{Kind: wire.Room}, Payload: binary.LittleEndian.AppendUint64(answer, free)})
}

// room reads an owner's answer.
func (l *link) room(h wire.Header) error {
	var b [roomSize]byte
	if h.Length != roomSize || !l.roomAsked.Swap(false) {
		return fmt.Errorf("%s frame of %d bytes, which nobody asked for", h.Kind, h.Length)
	}
	if err := l.conn.Payload(b[:]); err != nil {
		return err
	}
	l.rooms <- RoomError{l.task, binary.LittleEndian.Uint64(b[:]), binary.LittleEndian.Uint64(b[8:])}
	return nil
}

// roomFor returns the bytes that new pieces take on this host, those of other
// owners on it included, and what the host has free. Where nobody can say
// what is free, there is no end to it.
func (s *server) roomFor(now, next *Declaration) (need, free uint64) {
	for i, t := range next.Owners {
		if t == s.self || s.neighbour(t) {
			need += next.growth(now, i)
		}
	}
	free, err := s.memory()
	if err == nil && free < need { // what Go has not given back yet is free as well
		debug.FreeOSMemory()
		free, err = s.memory()
	}
	if err != nil {
		return need, math.MaxUint64
	}
	return need, free
}

// neighbour reports whether another owner is on the same host.
func (s *server) neighbour(t cluster.Task) bool {
	mine, _, err := net.SplitHostPort(s.cluster.Addr(s.self))
	if err != nil {
		return false
	}
	other, _, err := net.SplitHostPort(s.cluster.Addr(t))
	return err == nil && mine == other
}

// growth is the bytes of an owner's pieces that it does not have as they are.
func (d *Declaration) growth(before *Declaration, owner int) (bytes uint64) {
	stays := map[Piece]bool{}
	for _, p := range before.Pieces {
		stays[p] = true
	}
	for _, p := range d.Pieces {
		if p.Owner != owner || stays[p] {
			continue
		}
		v := d.Variables[p.Variable]
		slots := v.settings(d.Optimizer).Slots()
		bytes += uint64(p.Count)*uint64(v.unitSize())*uint64(1+slots) + uint64(p.Count)/8
	}
	return bytes
}
