package server

import (
	"fmt"
	"slices"

	"github.com/plx-run/plx/trainer/aggregate"
	"github.com/plx-run/plx/trainer/exchange/message"
	"github.com/plx-run/plx/trainer/layout"
	"github.com/plx-run/plx/trainer/wire"
)

// contribution records the gradients that one worker sends in the current step.
// Only the reader of the worker's connection uses it.
type contribution struct {
	rank    int
	begun   uint64 // number of steps begun
	ahead   bool   // the worker must fetch values before its first step
	payload []byte // of the step's first frame
	present []int  // by part: number of virtual workers with data in the step
	got     []bool // by shard and part: its gradient has arrived; nil: no step was begun under this map
	need    int    // number of gradients still to come
}

// read reads the first frame of a step.
func (c *contribution) read(h wire.Header, e *aggregate.Shards, from message.Payload) error {
	if want := message.BeginningSize(e.Contributor(c.rank)); h.Length != uint64(want) {
		return fmt.Errorf("step frame of %d bytes, want %d", h.Length, want)
	}
	c.payload = slices.Grow(c.payload[:0], int(h.Length))[:h.Length]
	if err := from.Payload(c.payload); err != nil {
		return err
	}
	jumps := e.Declaration().Sync.Competes() && h.Step > c.begun // a late worker skips steps
	if h.Step != c.begun && !jumps || c.need > 0 || c.ahead {
		return fmt.Errorf("begins step %d during step %d, with %d gradients to come", h.Step, c.begun, c.need)
	}
	return nil
}

// decode decodes the frame that read has read. It reuses the memory of the
// previous step, which must be over.
func (c *contribution) decode() aggregate.Beginning {
	return message.DecodeBeginning(c.payload, c.present)
}

// begin records that a step has begun and counts the gradients to come.
func (c *contribution) begin(step uint64, b aggregate.Beginning, e *aggregate.Shards) {
	of := e.Contributor(c.rank)
	c.begun, c.present = step+1, b.Present
	if c.got == nil {
		c.got = make([]bool, len(e.All())*len(of.Parts))
	}
	clear(c.got)
	for _, n := range b.Present {
		if n > 0 {
			c.need += len(e.All())
		}
	}
}

// push takes one gradient of the current step. Each gradient must come exactly
// once.
func (c *contribution) push(h wire.Header, e *aggregate.Shards, read func([]byte) error) error {
	if c.got == nil || h.Step+1 != c.begun {
		return fmt.Errorf("gradient of step %d, %d steps were begun", h.Step, c.begun)
	}
	i, err := find(e, h, wire.Push)
	if err != nil {
		return err
	}
	of := e.Contributor(c.rank)
	input, ok := of.Input(h.Part)
	if !ok || c.present[input-of.First] == 0 {
		return fmt.Errorf("gradient of variable %d for part %d of the tree, which it does not bring", h.Variable, h.Part)
	}
	got := &c.got[i*len(of.Parts)+input-of.First]
	if *got {
		return fmt.Errorf("gradient of variable %d came twice in step %d", h.Variable, h.Step)
	}
	present, err := e.All()[i].Receive(of.Group, input, h.Length, read)
	if err != nil {
		return err
	}
	*got = true
	c.need--
	e.Arrive(of.Group, i, input, present)
	return nil
}

// unfinished reports whether gradients of the current step are still to come.
// If workers compete it returns false, because a worker sends no gradients for
// a step in which they do not count.
func (c *contribution) unfinished(e *aggregate.Shards) bool {
	return c.need > 0 && !e.Declaration().Sync.Competes()
}

// lose completes, on this holder, the last step in which the lost worker
// counts. counts is the first step in which it does not. Pieces that have the
// gradient of the worker keep it. The others are updated from the gradients
// that arrived, divided by the number of their virtual workers. what describes
// the missing gradients; "": none are missing. lose is called once, after the
// reader has ended.
func (c *contribution) lose(e *aggregate.Shards, counts uint64) (what string, err error) {
	of := e.Contributor(c.rank)
	if c.begun < counts {
		if err := e.Begin(c.rank, counts-1, aggregate.Beginning{Present: make([]int, len(of.Parts))}); err != nil {
			return "", fmt.Errorf("step %d without the lost worker %d: %w", counts-1, c.rank, err)
		}
		return fmt.Sprintf("step %d is made without %s here: nothing of its gradients had come", counts-1, worker(c.rank)), nil
	}
	if c.need == 0 {
		return "", nil
	}
	for i := range e.All() {
		for part, present := range c.present {
			if present > 0 && !c.got[i*len(of.Parts)+part] {
				e.Lack(of.Group, i, of.First+part, present)
			}
		}
	}
	return fmt.Sprintf("step %d is made with a part of what %s had: %d of its gradients had not come", c.begun-1, worker(c.rank), c.need), nil
}

// find returns the index of the shard that a frame of kind want is for.
func find(e *aggregate.Shards, h wire.Header, want wire.Kind) (int, error) {
	if h.Kind != want {
		return 0, fmt.Errorf("%s frame where %s was due", h.Kind, want)
	}
	i, ok := e.Find(layout.Place{Variable: int(h.Variable), Offset: int(h.Offset)})
	if !ok {
		return 0, fmt.Errorf("%s frame for variable %d from element %d, which is not kept here", h.Kind, h.Variable, h.Offset)
	}
	return i, nil
}
