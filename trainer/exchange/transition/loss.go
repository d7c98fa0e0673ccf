package transition

import (
	"context"
	"fmt"

	"github.com/plx-run/plx/trainer/aggregate"
)

// Loss completes, on one holder, the last step that a lost worker counts in,
// with what came of it. Pieces that have the worker's gradient keep it, the
// others are made from those that are there, divided by so many.
type Loss struct {
	Rank    int
	Counts  uint64 // the first step in which the worker counts no more
	Begun   uint64 // steps that it has begun here
	Present []int  // by part: virtual workers in the step that it began last
	Got     []bool // by shard and part: its gradient came in that step
	Need    int    // gradients that are still to come in it
}

// Run is called once, when nothing is read from the worker any more.
func (l Loss) Run(_ context.Context, now *aggregate.Shards) (*aggregate.Shards, error) {
	c := now.Contributor(l.Rank)
	if l.Begun < l.Counts {
		if err := now.Begin(l.Rank, l.Counts-1, aggregate.Beginning{Present: make([]int, len(c.Parts))}); err != nil {
			return now, fmt.Errorf("step %d without the lost worker %d: %w", l.Counts-1, l.Rank, err)
		}
		return now, nil
	}
	for i := range now.All() {
		for part, present := range l.Present {
			if present > 0 && l.Need > 0 && now.Expects(c, i) && !l.Got[i*len(c.Parts)+part] {
				now.Lack(c.Group, i, c.First+part, present)
			}
		}
	}
	return now, nil
}

// String says what the step is made with; "": nothing is missing.
func (l Loss) String() string {
	switch {
	case l.Begun < l.Counts:
		return fmt.Sprintf("step %d is made without worker:%d here: nothing of its gradients had come", l.Counts-1, l.Rank)
	case l.Need > 0:
		return fmt.Sprintf("step %d is made with a part of what worker:%d had: %d of its gradients had not come", l.Begun-1, l.Rank, l.Need)
	}
	return ""
}
