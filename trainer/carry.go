package trainer

import (
	"context"
	"errors"
	"fmt"

	"github.com/plx-run/plx/trainer/checkpoint/store"
	"github.com/plx-run/plx/trainer/checkpoint/tensors"
	"github.com/plx-run/plx/trainer/replica"
	"gorgonia.org/tensor"
)

// carriage is state that a program carries from one step to the next. It becomes
// part of checkpoints.
type carriage struct {
	store      *store.Store // nil: there are no checkpoints
	inStep     bool         // else there is no moment that all workers share, and nothing is saved
	checkpoint string       // that training resumes from; "": none
	from, to   int          // rows that this worker feeds
	states     []carried
}

// carried is one state.
type carried struct {
	name   string
	state  *tensor.Dense
	memory []byte // of state
	before []byte // what memory was when the step under way began
}

// add makes a state part of checkpoints and fills it from the one that training
// resumes from. found is false if that lacks it.
func (c *carriage) add(ctx context.Context, name string, state *tensor.Dense) (found bool, err error) {
	memory, ok := replica.RowMajor(state)
	switch {
	case name == "":
		return false, errors.New("it has no name")
	case !ok:
		return false, fmt.Errorf("a tensor of %v: want float32 or float64 in row-major order", state.Dtype())
	case state.Dims() == 0 || state.Shape()[0] != c.to-c.from:
		return false, fmt.Errorf("shape %v: want %s first, which is what this worker feeds", state.Shape(), count(c.to-c.from, "row"))
	}
	for _, other := range c.states {
		if other.name == name {
			return false, errors.New("said twice")
		}
	}
	if c.store == nil {
		return true, nil
	}
	found = true
	if c.checkpoint != "" {
		if found, err = c.fill(ctx, name, state, memory); err != nil {
			return false, err
		}
	}
	c.states = append(c.states, carried{name: name, state: state, memory: memory, before: make([]byte, len(memory))})
	return found, nil
}

// fill reads a state from the checkpoint that training resumes from.
func (c *carriage) fill(ctx context.Context, name string, state *tensor.Dense, memory []byte) (found bool, err error) {
	saved, found, err := c.store.Carried(ctx, name, c.from, c.to)
	if err != nil || !found {
		return false, err
	}
	if saved.Dtype != state.Dtype().String() || len(saved.Data) != len(memory) {
		return false, fmt.Errorf("checkpoint %s has %s of shape %v, the program %s of shape %v",
			c.checkpoint, saved.Dtype, saved.Shape, state.Dtype().String(), state.Shape())
	}
	copy(memory, saved.Data)
	return true, nil
}

// saves reports whether workers add state of their own to checkpoints.
func (c *carriage) saves() bool { return len(c.states) > 0 && c.inStep }

// keep notes what is carried into the step that begins.
func (c *carriage) keep() {
	if c.inStep {
		for _, s := range c.states {
			copy(s.before, s.memory)
		}
	}
}

// saveBefore gives the store what was carried into a step.
func (c *carriage) saveBefore(step int) { c.save(step, func(s carried) []byte { return s.before }) }

// saveNow gives the store what is carried into the next step.
func (c *carriage) saveNow(step int) { c.save(step, func(s carried) []byte { return s.memory }) }

func (c *carriage) save(step int, of func(carried) []byte) {
	if !c.saves() {
		return
	}
	all := map[string]tensors.Carried{}
	for _, s := range c.states {
		all[s.name] = tensors.Carried{Dtype: s.state.Dtype().String(), Shape: s.state.Shape().Clone(), Data: append([]byte(nil), of(s)...)}
	}
	c.store.SaveCarried(uint64(step), c.from, c.to, all)
}
