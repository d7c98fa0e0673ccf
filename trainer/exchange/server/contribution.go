package server

import (
	"fmt"
	"slices"

	"github.com/plx-run/plx/trainer/aggregate"
	"github.com/plx-run/plx/trainer/exchange/message"
	"github.com/plx-run/plx/trainer/layout"
	"github.com/plx-run/plx/trainer/wire"
)

// contribution tracks which gradients one worker has sent in the current step.
// Only the goroutine that reads the worker's connection uses it.
type contribution struct {
	rank    int
	begun   uint64 // number of steps that the worker has begun
	ahead   bool   // true if the worker is too far ahead of others to take a step, and must first request values with a Fetch frame
	payload []byte // payload of the Step frame, with which the worker began the step
	present []int  // number of the worker's virtual workers with data in this step; indexed by part (subtree of the summation tree) that the worker sends
	got     []bool // indexed by shard and part: true if the gradient has arrived; nil if no step has begun since the variables were last assigned to tasks
	need    int    // number of gradients of this step that have not arrived yet
}

// read reads the Step frame, with which a worker begins a step, and checks
// that the worker may begin that step.
func (c *contribution) read(h wire.Header, e *aggregate.Shards, from message.Payload) error {
	if want := message.BeginningSize(e.Contributor(c.rank)); h.Length != uint64(want) {
		return fmt.Errorf("step frame of %d bytes, want %d", h.Length, want)
	}
	c.payload = slices.Grow(c.payload[:0], int(h.Length))[:h.Length]
	if err := from.Payload(c.payload); err != nil {
		return err
	}
	jumps := e.Declaration().Sync.WorkersCompete() && h.Step > c.begun // in mode backup, a worker whose gradients came too late skips steps
	if h.Step != c.begun && !jumps || c.need > 0 || c.ahead {
		return fmt.Errorf("begins step %d during step %d, with %d gradients to come", h.Step, c.begun, c.need)
	}
	return nil
}

// decode decodes the Step frame that read has stored. It overwrites the data
// of the previous step, so the previous step must be complete.
func (c *contribution) decode() aggregate.Beginning {
	return message.DecodeBeginning(c.payload, c.present)
}

// begin records that the worker has begun a step, and computes how many
// gradients the worker must send.
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

// push reads one gradient of the current step. It fails if the same gradient
// arrives twice.
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
		return fmt.Errorf("gradient of variable %d for part %d of the tree, which it must not send", h.Variable, h.Part)
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

// unfinished reports whether the worker must still send gradients of the
// current step. In mode backup it returns false, because there a worker sends
// gradients only if the step uses them.
func (c *contribution) unfinished(e *aggregate.Shards) bool {
	return c.need > 0 && !e.Declaration().Sync.WorkersCompete()
}

// lose completes, on this shard holder (a task that stores variables), the
// last step in which a lost worker takes part. The parameter counts is the
// number of the first step without the worker.
//
// A shard that has already received the worker's gradient uses it. All other
// shards divide the sum of the gradients that arrived by the number of virtual
// workers (parts of the batch) in that sum. The returned text describes the
// missing gradients; it is empty if none are missing. Call lose once, after
// the goroutine that reads the worker's connection has ended.
func (c *contribution) lose(e *aggregate.Shards, counts uint64) (what string, err error) {
	of := e.Contributor(c.rank)
	if c.begun < counts {
		if err := e.Begin(c.rank, counts-1, aggregate.Beginning{Present: make([]int, len(of.Parts))}); err != nil {
			return "", fmt.Errorf("step %d without the lost worker %d: %w", counts-1, c.rank, err)
		}
		return fmt.Sprintf("step %d is completed without %s: none of its gradients had arrived", counts-1, worker(c.rank)), nil
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
	return fmt.Sprintf("step %d is completed with only some gradients of %s: %d had not arrived", c.begun-1, worker(c.rank), c.need), nil
}

// find returns the index of the shard that a frame is for. It returns an error
// if the frame is not of the kind in the parameter want.
func find(e *aggregate.Shards, h wire.Header, want wire.Kind) (int, error) {
	if h.Kind != want {
		return 0, fmt.Errorf("%s frame where %s was due", h.Kind, want)
	}
	i, ok := e.Find(layout.Place{Variable: int(h.Variable), Offset: int(h.Offset)})
	if !ok {
		return 0, fmt.Errorf("%s frame for variable %d from element %d, which this task does not hold", h.Kind, h.Variable, h.Offset)
	}
	return i, nil
}
