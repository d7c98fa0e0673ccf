package exchange

import (
	"context"
)

// Join takes part in the steps of the others without data until nobody has
// any: it returns nil after the step in which no virtual worker of the workers that are
// added up was present. Every one of them learns that at the same step, as
// Outcome.Leaves of 0. A worker whose gradients are added to nobody else's
// returns at once, and in backup mode too: it is to Close instead.
//
// It is Begin with all own virtual workers absent, and Finish, over and over; who has
// something to do after every step does that by hand.
func (c *Client) Join(ctx context.Context) error {
	if c.d.Sync.Competes() {
		return c.reason()
	}
	var leaves []int
	for leaf := c.leaves.Lo; leaf < c.leaves.Hi; leaf++ {
		leaves = append(leaves, leaf)
	}
	if err := c.Resume(ctx); err != nil {
		return err
	}
	for {
		if err := c.Begin(0, leaves...); err != nil {
			return err
		}
		end, err := c.Finish(ctx, nil)
		if err != nil || end.VirtualWorkers == 0 {
			return err
		}
	}
}
