package exchange

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/plx-run/plx/trainer/sparse"
)

// Wanted are rows of one sparse variable: Index is strictly ascending, Into
// gets the rows one after the other.
type Wanted struct {
	Variable int
	Index    []int64
	Into     []byte
}

// Want asks for rows of the step that follows the one under way, or of the
// next one between two steps: all in one request per holder, and as early as
// possible. What the step under way leaves alone comes while it is under way.
// Want waits for nobody. Await says when the rows are there; until then wanted
// is the client's.
//
// A step is asked for once at most. A Want that is not awaited does no harm,
// but it is the last. Workers must be in step: mode sync.
func (c *Client) Want(wanted []Wanted) error {
	step := c.step
	if c.within {
		step++
	}
	if err := c.wantable(step, wanted); err != nil {
		return err
	}
	a := &asking{step: step, done: make(chan struct{})}
	c.asking, c.asked = a, step+1
	c.seek(a, wanted)
	return c.reason()
}

func (c *Client) wantable(step uint64, wanted []Wanted) error {
	switch {
	case c.reason() != nil:
		return c.reason()
	case !c.d.Sync.InStep():
		return fmt.Errorf("rows wanted with synchronisation %s: workers must take their steps together; use Rows", c.d.Sync)
	case c.asking != nil:
		return fmt.Errorf("rows of step %d are wanted, those of step %d were not awaited", step, c.asking.step)
	case c.asked == step+1:
		return fmt.Errorf("rows of step %d are wanted twice", step)
	}
	for i, w := range wanted {
		if err := c.askable(w.Variable, w.Index, w.Into); err != nil {
			return err
		}
		if slices.ContainsFunc(wanted[:i], func(other Wanted) bool { return other.Variable == w.Variable }) {
			return fmt.Errorf("rows of variable %q are wanted twice", c.d.Variables[w.Variable].Name)
		}
	}
	return nil
}

// askable says what is wrong with a request for rows.
func (c *Client) askable(variable int, index []int64, into []byte) error {
	if err := c.pullable(variable); err != nil {
		return err
	}
	v := c.d.Variables[variable]
	check := sparse.Rows[float64]{Index: index}
	if err := check.Check(0, int64(v.Shape[0]), 0); err != nil {
		return fmt.Errorf("rows of variable %q: %w", v.Name, err)
	}
	if len(into) != len(index)*v.UnitBytes() {
		return fmt.Errorf("rows of variable %q: %d bytes for %d rows of %d", v.Name, len(into), len(index), v.UnitBytes())
	}
	return nil
}

// Await returns when all rows of the last Want are there, with their values
// after all steps before the one that they are wanted for. It must be called
// before that one begins.
func (c *Client) Await(ctx context.Context) error {
	a := c.asking
	switch {
	case c.reason() != nil:
		return c.reason()
	case a == nil:
		return errors.New("rows are awaited that nobody wanted")
	case c.within || c.step != a.step:
		return fmt.Errorf("rows of step %d are awaited at step %d", a.step, c.step)
	}
	began := time.Now()
	select {
	case <-a.done:
		c.config.Trace.Span("wait", "rows", began, time.Now(), "step", a.step)
	case <-c.failed:
		return c.hangUp()
	case <-ctx.Done():
		c.fail(context.Cause(ctx)) // what was asked for may still be written
		return c.hangUp()
	}
	c.asking = nil
	for _, p := range a.own {
		if err := c.local.rowsOf(p.Piece).Read(p.index, p.into); err != nil {
			return err
		}
	}
	if !a.direct {
		return nil
	}
	for _, w := range a.host {
		if err := c.Rows(ctx, w.Variable, w.Index, w.Into); err != nil {
			return err
		}
	}
	return nil
}
