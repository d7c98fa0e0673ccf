package client

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"

	"github.com/plx-run/plx/trainer/exchange/message"
	"github.com/plx-run/plx/trainer/exchange/transition"
	"github.com/plx-run/plx/trainer/layout"
	"github.com/plx-run/plx/trainer/peers"
	"github.com/plx-run/plx/trainer/wire"
)

// Placement moves rows of sparse variables to other shard holders (tasks that
// store parts of variables), and reports traffic.
type Placement struct {
	holders  *holders
	progress *progress
	rows     *Rows
}

// Room asks every shard holder (a task that stores parts of variables) whether
// it has enough memory for the given pieces in addition to its current ones.
// The error is a [*transition.RoomError] for the first one with too little
// memory. Only one worker at a time may call Room, between two steps.
//
// Room assumes the worst case, in which every row of a new piece has been
// updated. Pieces that stay where they are need no additional memory.
func (p *Placement) Room(ctx context.Context, pieces []layout.Piece) error {
	h := p.holders
	if err := h.working(); err != nil {
		return err
	}
	now := h.shards.Load().d
	d, err := now.Placed(pieces)
	if err != nil {
		return err
	}
	for _, l := range h.links {
		if l != nil {
			l.replies.asked.Store(true)
			l.running.Go(func() { l.check(l.session.SendJSON(wire.Room, d.Pieces, message.MaxDeclaration)) })
		}
	}
	var full error
	for _, l := range h.links {
		var r transition.RoomError
		if l == nil {
			r = h.local.server.Room(now, d)
		} else if r, err = await(ctx, h, l.replies.rooms); err != nil {
			return err
		}
		if full == nil && !r.Fits() {
			full = &r
		}
	}
	return full
}

// Repartition moves sparse variables to other shard holders (tasks that store
// parts of variables), between two steps. Every worker calls it with the same
// pieces before the same step. It returns after every shard holder has its new
// pieces. Values and optimiser state move unchanged, so the result of training
// keeps the same bits.
//
// The set of shard holders stays as declared. One that loses all pieces takes
// no part in steps, and may get pieces later. Declaration.Movable must be set.
// No other method of Rows or Placement may run at the same time, and
// Rows.Await must have returned for every prefetch request.
//
// If the pieces are invalid, Repartition changes nothing. After any other
// error the client cannot be used.
func (p *Placement) Repartition(ctx context.Context, pieces []layout.Piece) error {
	h, step := p.holders, p.progress.step
	if err := h.working(); err != nil {
		return err
	}
	if p.progress.within {
		return fmt.Errorf("variables move between two steps, not in step %d", step)
	}
	if a := p.rows.asking; a != nil {
		return fmt.Errorf("variables move before step %d, but rows that were requested for step %d were not awaited", step, a.step)
	}
	now := h.shards.Load()
	d, err := now.d.Placed(pieces)
	if err != nil {
		return err
	}
	next := newShardMap(now.epoch+1, d)
	move := transition.MoveRequest{Epoch: next.epoch, Step: step, Pieces: d.Pieces}
	body, err := json.Marshal(move)
	if err != nil {
		return fmt.Errorf("new holders: %w", err)
	}
	if len(body) > message.MaxDeclaration {
		return fmt.Errorf("%d pieces take %d bytes, want at most %d", len(pieces), len(body), message.MaxDeclaration)
	}
	if h.aggregator != nil {
		h.aggregator.Rows.Skip(step)
	}
	for _, l := range h.connected() {
		l.coming.Store(newHolding(next.epoch, step, d, l.index, l.out))
		l.running.Go(func() {
			l.check(l.session.Send(wire.Frame{Header: wire.Header{Kind: wire.Remap, Step: step}, Payload: body}))
		})
	}
	for _, l := range h.serving {
		if err := l.server.Remap(&move); err != nil {
			var known *peers.PeerError
			if !errors.As(err, &known) {
				err = &peers.PeerError{Task: h.config.Peers.Self, Addr: "this task", Err: err}
			}
			h.fail(err)
		}
	}
	if err := p.awaitMoved(ctx); err != nil {
		return err
	}
	h.shards.Store(next)
	return nil
}

// awaitMoved waits until every shard holder (a task that stores parts of
// variables) has reported that it has received all its rows.
func (p *Placement) awaitMoved(ctx context.Context) error {
	for _, l := range p.holders.serving {
		if _, err := await(ctx, p.holders, l.moved); err != nil {
			return err
		}
	}
	for _, l := range p.holders.connected() {
		if _, err := await(ctx, p.holders, l.replies.moved); err != nil {
			return err
		}
		l.session.SetEpoch(l.holds.Load().epoch)
	}
	return nil
}

// Volumes returns this worker's network traffic by variable and shard holder
// (a task that stores parts of variables). It does not count initial values
// and heartbeats.
func (p *Placement) Volumes() (all []Volume) {
	h := p.holders
	for variable := range len(h.d.Variables) + 1 {
		add := func(holder int, volumes []volume) {
			v := &volumes[variable]
			x := Volume{variable, holder, v.rows.Load(), v.pulled.Load(), v.sent.Load(), v.received.Load()}
			if x != (Volume{Variable: variable, Holder: holder}) {
				all = append(all, x)
			}
		}
		if h.up != nil {
			add(h.up.index, h.up.volumes)
		}
		for i, l := range h.links {
			switch {
			case l != nil:
				add(i, l.volumes)
			case h.local != nil:
				add(i, h.local.volumes)
			}
		}
	}
	return all
}
