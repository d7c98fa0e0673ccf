package exchange

import (
	"context"
	"encoding/binary"
	"encoding/json"
	"fmt"

	"github.com/plx-run/plx/trainer/exchange/transition"
	"github.com/plx-run/plx/trainer/layout"
	"github.com/plx-run/plx/trainer/wire"
)

// Room asks every holder whether it could hold its share of pieces beside what
// it has now; a [*transition.RoomError] names the first that could not. Any one worker
// may ask, between two steps. Counted are new pieces once every row of them
// was updated; those that stay as they are cost nothing.
func (c *Client) Room(ctx context.Context, pieces []layout.Piece) error {
	if err := c.working(); err != nil {
		return err
	}
	now := c.shards.Load().d
	d, err := now.Placed(pieces)
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
		var r transition.RoomError
		if l == nil {
			r = c.local.server.holder().Room(now, d)
		} else if r, err = l.awaitRoom(ctx); err != nil {
			return err
		}
		if full == nil && !r.Fits() {
			full = &r
		}
	}
	return full
}

func (l *link) awaitRoom(ctx context.Context) (transition.RoomError, error) {
	select {
	case r := <-l.rooms:
		return r, nil
	case <-l.client.failed:
	case <-ctx.Done():
		l.client.fail(context.Cause(ctx))
	}
	return transition.RoomError{}, l.client.hangUp()
}

// room reads a holder's answer.
func (l *link) room(h wire.Header) error {
	var b [roomSize]byte
	if h.Length != roomSize || !l.roomAsked.Swap(false) {
		return fmt.Errorf("%s frame of %d bytes, which nobody asked for", h.Kind, h.Length)
	}
	if err := l.conn.Payload(b[:]); err != nil {
		return err
	}
	l.rooms <- transition.RoomError{Holder: l.task, Need: binary.LittleEndian.Uint64(b[:]), Free: binary.LittleEndian.Uint64(b[8:])}
	return nil
}
