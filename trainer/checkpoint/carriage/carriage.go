// Package carriage keeps the recurrent state of a worker, such as the last
// hidden state of an LSTM, from one step to the next. It also adds the state
// to checkpoints. Each row of the global batch has state of its own.
//
//	c, err := carriage.New(carriage.Config{Store: store, Inputs: inputs, ...})
//	missing, err := c.Restore(ctx)  // from the checkpoint that training resumes from
//	feed = c.Complete(feed, 0)      // adds the state to the feed of a step
//	c.Keep()                        // the step begins
//	err = c.Take(replica, vw, vws)  // a virtual worker (a share of the batch) has run
//	c.SaveBefore(step)              // a checkpoint was made before that step
//	c.SaveNow(step)                 // the last checkpoint, after the last step
//
// # Limits
//
// Package saver decides when a checkpoint is made, and package store writes
// it. This package only passes copies of the state to the store.
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

// Config has the settings of a [Carriage].
type Config struct {
	Store      *store.Store   // checkpoint store; nil means that the job makes no checkpoints
	InStep     bool           // true if training is synchronous: all workers take every step together; if false, state is not saved
	Checkpoint string         // ID of the checkpoint that training resumes from; empty if training begins from scratch
	From, To   int            // range [From, To) of the rows of the global batch that this worker processes
	Rows       int            // rows of the batch that one virtual worker (a fixed share of the global batch) processes
	Inputs     gorgonia.Nodes // the model's inputs that get recurrent state; their first dimension is Rows
}

// Carriage is the recurrent state of one worker. Only one goroutine at a time
// may use it, except that several may call Take at the same time.
type Carriage struct {
	config Config
	states []carried // recurrent state for each input, sorted by name
}

// carried is the recurrent state for one input of the model.
type carried struct {
	name   string
	state  *tensor.Dense // state for rows [From, To); each step reads it and then overwrites it
	memory []byte        // the bytes of state in row-major order; shares the tensor's memory
	before []byte        // copy of memory from the beginning of the current step; nil if the job makes no checkpoints
}

// New returns a Carriage in which all state is zero.
func New(config Config) (*Carriage, error) {
	c := &Carriage{config: config}
	for _, input := range config.Inputs {
		shape := input.Shape().Clone()
		if len(shape) == 0 || shape[0] != config.Rows {
			return nil, fmt.Errorf("carried %q: shape %v: want %s first, one for each row of the batch", input.Name(), shape, plural.Count(config.Rows, "row"))
		}
		shape[0] = config.To - config.From
		state := carried{name: input.Name(), state: tensor.New(tensor.Of(input.Dtype()), tensor.WithShape(shape...))}
		state.memory, _ = replica.RowMajor(state.state) // cannot fail: tensor.New has made a row-major tensor
		if config.Store != nil {
			state.before = make([]byte, len(state.memory))
		}
		c.states = append(c.states, state)
	}
	slices.SortFunc(c.states, func(a, b carried) int { return cmp.Compare(a.name, b.name) })
	return c, nil
}

// Restore reads the state from the checkpoint that training resumes from. It
// returns the names of inputs for which the checkpoint has no state; those
// start with zeros.
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

// Complete returns a copy of feed with the recurrent state added for each input
// that feed does not set. For a training step, the caller passes 0 as rows,
// and the state is that after the previous step. For an evaluation, rows is the
// size of the batch, and the state is zeros.
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

// Take reads from a replica the state that virtual worker vw (a share of the
// batch) leaves for the next step. vws is the number of virtual workers. The
// new state overwrites the state with which the current step began. Several
// goroutines may call Take, for different virtual workers.
func (c *Carriage) Take(one *replica.Replica, vw, vws int) error {
	for i, s := range c.states {
		n := len(s.memory) / vws
		if err := one.Carry(i, s.memory[vw*n:][:n]); err != nil {
			return err
		}
	}
	return nil
}

// Saves reports whether this worker adds recurrent state to checkpoints.
func (c *Carriage) Saves() bool {
	return len(c.states) > 0 && c.config.InStep && c.config.Store != nil
}

// Keep copies the current state at the beginning of a step, so that SaveBefore
// can save it later.
func (c *Carriage) Keep() {
	if c.Saves() {
		for _, s := range c.states {
			copy(s.before, s.memory)
		}
	}
}

// SaveBefore passes the state from the beginning of the current step to the
// store (which writes checkpoints). step is the number of steps made before
// the current step.
func (c *Carriage) SaveBefore(step int) { c.save(step, func(s carried) []byte { return s.before }) }

// SaveNow passes the current state to the store. step is the number of steps
// made.
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
