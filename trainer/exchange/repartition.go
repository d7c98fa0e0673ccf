package exchange

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"

	"github.com/plx-run/plx/trainer/exchange/transition"
	"github.com/plx-run/plx/trainer/layout"
	"github.com/plx-run/plx/trainer/peers"
	"github.com/plx-run/plx/trainer/wire"
)

// Repartition gives sparse variables new holders, between two steps: every
// worker calls it with the same pieces before the same step. It returns when
// all holders have what is theirs: values and what the optimiser keeps move,
// nothing is computed again, so no bit of the training changes. Holders stay
// as declared; one that gets no piece costs nothing from then on, and may get
// some later. Only a Declaration that is Movable allows it.
//
// Nothing may be under way with rows: no Rows, Whole or Room at the same time,
// and every Want was awaited. Pieces that cannot be are refused and nothing has
// changed; after any other error the client is of no more use.
func (c *Client) Repartition(ctx context.Context, pieces []layout.Piece) error {
	if err := c.working(); err != nil {
		return err
	}
	if c.within {
		return fmt.Errorf("variables move between two steps, not in step %d", c.step)
	}
	if c.asking != nil {
		return fmt.Errorf("variables move before step %d, but rows that were wanted for step %d were not awaited", c.step, c.asking.step)
	}
	now := c.shards.Load()
	d, err := now.d.Placed(pieces)
	if err != nil {
		return err
	}
	next := newShardMap(now.epoch+1, d)
	body, err := json.Marshal(transition.Wanted{Epoch: next.epoch, Step: c.step, Pieces: d.Pieces})
	if err != nil {
		return fmt.Errorf("new owners: %w", err)
	}
	if len(body) > maxDeclaration {
		return fmt.Errorf("%d pieces take %d bytes, want at most %d", len(pieces), len(body), maxDeclaration)
	}
	if c.relay != nil {
		c.relay.union.skip(c.step)
	}
	c.askToMove(next, body)
	if err := c.awaitMoved(ctx); err != nil {
		return err
	}
	c.shards.Store(next)
	return nil
}

// askToMove tells every holder, and the first worker of the host.
func (c *Client) askToMove(next *shardMap, body []byte) {
	for _, l := range c.connected() {
		l.coming.Store(l.newHolding(next.epoch, c.step, next.d))
		l.running.Go(func() {
			l.sendFailed(l.conn.Send(wire.Frame{Header: wire.Header{Kind: wire.Remap, Step: c.step}, Payload: body}))
		})
	}
	for _, l := range c.locals {
		if l.serves.Load() == nil {
			continue
		}
		err := l.server.remap(c.rank, &transition.Wanted{Epoch: next.epoch, Step: c.step, Pieces: next.d.Pieces})
		var known *peers.PeerError
		if err != nil && !errors.As(err, &known) {
			err = &peers.PeerError{Task: c.config.Peers.Self, Addr: "this task", Err: err}
		}
		if err != nil {
			c.fail(err)
		}
	}
}

// awaitMoved returns when every holder has said that all is where it belongs.
func (c *Client) awaitMoved(ctx context.Context) error {
	for _, l := range c.locals {
		if l.serves.Load() == nil {
			continue
		}
		if err := awaitOne(ctx, c, l.moved); err != nil {
			return err
		}
	}
	for _, l := range c.connected() {
		if err := awaitOne(ctx, c, l.moved); err != nil {
			return err
		}
		l.conn.SetEpoch(l.holds.Load().epoch)
	}
	return nil
}

// awaitOne waits for a holder's word.
func awaitOne(ctx context.Context, c *Client, said <-chan struct{}) error {
	select {
	case <-said:
		return nil
	case <-c.failed:
	case <-ctx.Done():
		c.fail(context.Cause(ctx))
	}
	return c.hangUp()
}
