package exchange

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/plx-run/plx/trainer/wire"
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
