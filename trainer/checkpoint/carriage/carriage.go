// Package carriage holds the recurrent state of a worker, such as what an LSTM's
// sequences ended with: what the worker's rows carry from one step to the next. It makes
// that state part of checkpoints.
//
//	c, err := carriage.New(carriage.Config{Store: store, Inputs: inputs, ...})
//	missing, err := c.Restore(ctx)  // from the checkpoint that training resumes from
//	feed = c.Complete(feed, 0)      // of a step
//	c.Keep()                        // the step begins
//	err = c.Take(replica, vw, vws)  // a virtual worker has run
//	c.SaveBefore(step)              // a checkpoint was made before that step
//	c.SaveNow(step)                 // the last checkpoint, after the last step
//
// # What it refuses
//
// It decides nothing about when a checkpoint is made, see package saver, and writes none
// itself: it gives copies to the checkpoint store.
package carriage

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"slices"

	"github.com/plx-run/plx/internal/plural"
	"github.com/plx-run/plx/trainer/checkpoint/store"
	"github.com/plx-run/plx/trainer/checkpoint/tensors"
	"github.com/plx-run/plx/trainer/replica"
	"gorgonia.org/gorgonia"
	"gorgonia.org/tensor"
)

// Config is what a carriage needs.
type Config struct {
	Store      *store.Store   // nil means that there are no checkpoints
	InStep     bool           // all workers take every step together; if not, state is not saved
	Checkpoint string         // ID of the checkpoint that training resumes from; empty means none
	From, To   int            // this worker feeds rows [From, To) of the global batch
	Rows       int            // rows of one virtual worker
	Inputs     gorgonia.Nodes // the model's inputs that are carried, as a virtual worker has them
}

// Carriage is what one worker carries. One goroutine at a time uses it, but for Take.
type Carriage struct {
	config Config
	states []carried // sorted by name
}

// carried is the state of one input.
type carried struct {
	name   string
	state  *tensor.Dense // rows [From, To); a step is fed it, and then writes to it
	memory []byte        // the bytes of state, not a copy
	before []byte        // copy of memory as it was when the step under way began; nil without checkpoints
}

// New begins with zeros.
func New(config Config) (*Carriage, error) {
	c := &Carriage{config: config}
	for _, input := range config.Inputs {
		shape := input.Shape().Clone()
		if len(shape) == 0 || shape[0] != config.Rows {
			return nil, fmt.Errorf("carried %q: shape %v: want %s first, one for each row of the batch", input.Name(), shape, plural.Count(config.Rows, "row"))
		}
		shape[0] = config.To - config.From
		state := carried{name: input.Name(), state: tensor.New(tensor.Of(input.Dtype()), tensor.WithShape(shape...))}
		state.memory, _ = replica.RowMajor(state.state) // it was made so
		if config.Store != nil {
			state.before = make([]byte, len(state.memory))
		}
		c.states = append(c.states, state)
	}
	slices.SortFunc(c.states, func(a, b carried) int { return cmp.Compare(a.name, b.name) })
	return c, nil
}

// Restore fills the states from the checkpoint that training resumes from. It returns the
// names of those that the checkpoint lacks: they begin anew.
func (c *Carriage) Restore(ctx context.Context) (missing []string, err error) {
	if c.config.Checkpoint == "" {
		return nil, nil
	}
	for _, s := range c.states {
		saved, found, err := c.config.Store.Carried(ctx, s.name, c.config.From, c.config.To)
		switch {
		case err != nil:
			return nil, fmt.Errorf("carried %q: %w", s.name, err)
		case !found:
			missing = append(missing, s.name)
		case saved.Dtype != s.state.Dtype().String() || !slices.Equal(saved.Shape, s.state.Shape()):
			return nil, fmt.Errorf("carried %q: checkpoint %s has %s of shape %v, the program %s of shape %v",
				s.name, c.config.Checkpoint, saved.Dtype, tensor.Shape(saved.Shape), s.state.Dtype(), s.state.Shape())
		}
		copy(s.memory, saved.Data)
	}
	return missing, nil
}

// Complete is feed with the states that it does not set. An evaluation of so many rows
// gets zeros; rows is 0 for a step.
func (c *Carriage) Complete(feed map[string]tensor.Tensor, rows int) map[string]tensor.Tensor {
	all := map[string]tensor.Tensor{}
	maps.Copy(all, feed)
	for _, s := range c.states {
		if all[s.name] == nil {
			all[s.name] = s.state
			if rows > 0 {
				all[s.name] = tensor.New(tensor.Of(s.state.Dtype()), tensor.WithShape(append([]int{rows}, s.state.Shape()[1:]...)...))
			}
		}
	}
	return all
}

// Take keeps what the vw-th of so many virtual workers leaves to the next step. Its
// part of the state was read before. Several virtual workers may call it at the same time.
func (c *Carriage) Take(one *replica.Replica, vw, vws int) error {
	for i, s := range c.states {
		n := len(s.memory) / vws
		if err := one.Carry(i, s.memory[vw*n:][:n]); err != nil {
			return err
		}
	}
	return nil
}

// Saves reports whether workers add state of their own to checkpoints.
func (c *Carriage) Saves() bool {
	return len(c.states) > 0 && c.config.InStep && c.config.Store != nil
}

// Keep notes what is carried into the step that begins.
func (c *Carriage) Keep() {
	if c.Saves() {
		for _, s := range c.states {
			copy(s.before, s.memory)
		}
	}
}

// SaveBefore gives the store what was carried into a step.
func (c *Carriage) SaveBefore(step int) { c.save(step, func(s carried) []byte { return s.before }) }

// SaveNow gives the store what is carried into the next step.
func (c *Carriage) SaveNow(step int) { c.save(step, func(s carried) []byte { return s.memory }) }

func (c *Carriage) save(step int, of func(carried) []byte) {
	if !c.Saves() {
		return
	}
	all := map[string]tensors.Carried{}
	for _, s := range c.states {
		all[s.name] = tensors.Carried{Dtype: s.state.Dtype().String(), Shape: s.state.Shape().Clone(), Data: slices.Clone(of(s))}
	}
	c.config.Store.SaveCarried(uint64(step), c.config.From, c.config.To, all)
}
