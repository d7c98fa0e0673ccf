package client

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"

	"github.com/plx-run/plx/trainer/aggregate"
	"github.com/plx-run/plx/trainer/exchange/message"
	"github.com/plx-run/plx/trainer/exchange/transition"
	"github.com/plx-run/plx/trainer/layout"
	"github.com/plx-run/plx/trainer/peers"
	"github.com/plx-run/plx/trainer/wire"
)

// Placement changes which holders have the rows of sparse variables.
type Placement struct {
	holders  *holders
	progress *progress
	rows     *Rows
}

// Room asks every holder whether it has the memory for its share of pieces in
// addition to what it has now; a [*transition.RoomError] names the first that
// has not. Any one worker may ask, between two steps. New pieces count as if
// every row of them was updated; those that stay as they are cost nothing.
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

// Repartition gives sparse variables to other holders, between two steps. Every
// worker calls it with the same pieces before the same step. It returns when
// every holder has its pieces: values and the state of the optimiser move,
// nothing is computed again, so no bit of the training changes. Holders stay as
// declared; one that gets no piece costs nothing from then on, and may get
// some later. Only a Declaration that is Movable allows it.
//
// No other method of Rows or Placement may run at the same time, and every
// prefetch request must have been awaited. If pieces are impossible, Repartition
// refuses them and changes nothing; after any other error the client cannot be
// used.
func (p *Placement) Repartition(ctx context.Context, pieces []layout.Piece) error {
	h, step := p.holders, p.progress.step
	if err := h.working(); err != nil {
		return err
	}
	if p.progress.within {
		return fmt.Errorf("variables move between two steps, not in step %d", step)
	}
	if a := p.rows.asking; a != nil {
		return fmt.Errorf("variables move before step %d, but rows that were wanted for step %d were not awaited", step, a.step)
	}
	now := h.shards.Load()
	d, err := now.d.Placed(pieces)
	if err != nil {
		return err
	}
	next := newShardMap(now.epoch+1, d)
	wanted := transition.Wanted{Epoch: next.epoch, Step: step, Pieces: d.Pieces}
	body, err := json.Marshal(wanted)
	if err != nil {
		return fmt.Errorf("new holders: %w", err)
	}
	if len(body) > message.MaxDeclaration {
		return fmt.Errorf("%d pieces take %d bytes, want at most %d", len(pieces), len(body), message.MaxDeclaration)
	}
	if h.relay != nil {
		h.relay.Rows.Skip(step)
	}
	for _, l := range h.connected() {
		l.coming.Store(newHolding(next.epoch, step, d, l.index, l.out))
		l.running.Go(func() {
			l.check(l.session.Send(wire.Frame{Header: wire.Header{Kind: wire.Remap, Step: step}, Payload: body}))
		})
	}
	for _, l := range h.serving() {
		if err := l.server.Remap(&wanted); err != nil {
			h.fail(h.blameSelf(err))
		}
	}
	if err := h.awaitMoved(ctx); err != nil {
		return err
	}
	h.shards.Store(next)
	return nil
}

// awaitMoved returns when every holder has reported that its rows have come.
func (h *holders) awaitMoved(ctx context.Context) error {
	for _, l := range h.serving() {
		if _, err := await(ctx, h, l.moved); err != nil {
			return err
		}
	}
	for _, l := range h.connected() {
		if _, err := await(ctx, h, l.replies.moved); err != nil {
			return err
		}
		l.session.SetEpoch(l.holds.Load().epoch)
	}
	return nil
}

// shardMap is which holder has what for the time being, as a worker knows it.
// It never changes: if variables move, another takes its place.
type shardMap struct {
	epoch uint32
	d     *layout.Declaration // with the pieces of the time being
	holds []bool              // by holder: it has pieces
	norm  *aggregate.Norm
}

func newShardMap(epoch uint32, d *layout.Declaration) *shardMap {
	return &shardMap{epoch: epoch, d: d, holds: d.Holding(), norm: aggregate.NewNorm(d)}
}

// holding is what one holder has for the time being, as a worker knows it. It
// never changes.
type holding struct {
	epoch  uint32
	step   uint64 // from which on it is valid
	pieces []layout.Piece
	where  map[layout.Place]int // index in pieces
	has    []bool               // by bucket: a piece is of it
	valued int                  // pieces whose values are sent
}

// newHolding returns what the holder of an index has in d.
func newHolding(epoch uint32, step uint64, d *layout.Declaration, index int, out *aggregate.Outbox) *holding {
	s := &holding{epoch: epoch, step: step, pieces: d.PiecesOf(index), where: map[layout.Place]int{}, has: make([]bool, len(out.Buckets))}
	for i, p := range s.pieces {
		if b := out.Bucket(p.Variable); b >= 0 {
			s.has[b] = true
		}
		s.where[layout.Place{Variable: p.Variable, Offset: p.Offset}] = i
		if d.Variable(p.Variable).Sparse == nil {
			s.valued++
		}
	}
	return s
}

// bounds returns the rows of a sparse piece.
func (s *holding) bounds(at layout.Place, d *layout.Declaration) (lo, hi int64, ok bool) {
	i, ok := s.where[at]
	if !ok || d.Variable(at.Variable).Sparse == nil {
		return 0, 0, false
	}
	p := s.pieces[i]
	return int64(p.Offset), int64(p.Offset + p.Count), true
}

// change takes the holder's report that variables have moved. left is how many
// values were to come, and returned is how many are now.
func (l *link) change(f wire.Header, left int) (int, error) {
	now, next := l.holds.Load(), l.coming.Swap(nil)
	if next == nil || f.Length != 0 || f.Epoch != next.epoch || f.Step != next.step || left != now.valued {
		return 0, fmt.Errorf("says that variables have moved, at step %d in epoch %d, which nobody asked for", f.Step, f.Epoch)
	}
	l.steps = next.step + 1
	l.came = slices.Repeat([]uint64{l.steps}, len(next.pieces))
	l.holds.Store(next)
	l.replies.moved <- struct{}{}
	return next.valued, nil
}

// blameSelf makes err one of this task itself, unless it blames a task already.
func (h *holders) blameSelf(err error) error {
	var known *peers.PeerError
	if errors.As(err, &known) {
		return err
	}
	return &peers.PeerError{Task: h.config.Peers.Self, Addr: "this task", Err: err}
}
