package exchange

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/plx-run/plx/trainer/wire"
)

// Conclude says that the chief, where workers are not in step, takes no further
// one, so that nobody waits for it, and returns true once all others have left. It
// waits for that at most so long: until then the chief may still Cut and Save, and
// calls it again.
func (c *Client) Conclude(ctx context.Context, most time.Duration) (alone bool, err error) {
	if err := c.savable(); err != nil {
		return false, err
	}
	if !c.d.Sync.Cuts() {
		return false, fmt.Errorf("step %d is the last one of all workers", c.step)
	}
	if err := c.tellOwners(wire.Frame{Header: wire.Header{Kind: wire.Alone}}); err != nil {
		return false, err
	}
	timer := time.NewTimer(most)
	defer timer.Stop()
	owns := c.shards.Load().owns
	for i, l := range c.links {
		if !owns[i] {
			continue
		}
		select {
		case <-l.alone:
		case <-timer.C:
			return false, nil
		case <-c.failed:
			return false, c.hangUp()
		case <-ctx.Done():
			c.fail(context.Cause(ctx))
			return false, c.hangUp()
		}
	}
	return true, nil
}

// isAlone takes a holder's word that all others have left.
func (l *link) isAlone(h wire.Header) error {
	if l.index < 0 || h.Length != 0 || !l.client.d.Sync.Cuts() {
		return fmt.Errorf("unexpected %s frame", h.Kind)
	}
	select {
	case <-l.alone:
		return errors.New("said twice that all others have left")
	default:
		close(l.alone)
		return nil
	}
}
