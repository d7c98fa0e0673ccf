package trainer

import (
	"context"
	"errors"
	"fmt"
	"log/slog"

	"github.com/plx-run/plx/trainer/depot"
	"gorgonia.org/tensor"
)

// carried is state that a program keeps from step to step.
type carried struct {
	name   string
	state  *tensor.Dense
	memory []byte // state's
	before []byte // as it was when the step under way began
}

// Carry makes state that the program keeps from one step to the next, such as
// what an LSTM's sequences ended with, part of checkpoints. Its first dimension
// are the rows that this worker feeds, see Rows; whoever computes a row after
// a restart gets what belongs to it. Every worker calls it with the same name,
// before its first step, and may change state whenever no Step is under way.
//
// Where training goes on from a checkpoint, Carry fills state with what it was
// then. It does nothing without --ckpt-dir. With a --sync other than sync such
// state begins anew, because there is no moment that all workers share.
func (r *Replica) Carry(ctx context.Context, name string, state *tensor.Dense) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	if err := r.carry(ctx, name, state); err != nil {
		return fmt.Errorf("carry %q: %w", name, err)
	}
	return nil
}

func (r *Replica) carry(ctx context.Context, name string, state *tensor.Dense) error {
	memory, ok := rowMajor(state)
	from, to := r.Rows()
	switch {
	case r.err != nil:
		return r.err
	case name == "":
		return errors.New("it has no name")
	case !ok:
		return fmt.Errorf("a tensor of %v: want float32 or float64 in row-major order", state.Dtype())
	case state.Dims() == 0 || state.Shape()[0] != to-from:
		return fmt.Errorf("shape %v: want %s first, which is what this worker feeds", state.Shape(), count(to-from, "row"))
	case r.step != r.standing.from:
		return fmt.Errorf("after step %d: it must be said before this run's first step", r.step)
	}
	for _, c := range r.carried {
		if c.name == name {
			return errors.New("said twice")
		}
	}
	if r.job.depot == nil {
		return nil
	}
	if r.declared.Checkpoint != "" {
		saved, there, err := r.job.depot.Carried(ctx, name, from, to)
		switch {
		case err != nil:
			return err
		case !there:
			r.job.Logf(slog.LevelWarn, "checkpoint %s has no %q: it begins anew", r.declared.Checkpoint, name)
		case saved.Dtype != state.Dtype().String() || len(saved.Data) != len(memory):
			return fmt.Errorf("checkpoint %s has %s of shape %v, the program %s of shape %v",
				r.declared.Checkpoint, saved.Dtype, saved.Shape, state.Dtype().String(), state.Shape())
		default:
			copy(memory, saved.Data)
		}
	}
	r.carried = append(r.carried, carried{name: name, state: state, memory: memory, before: make([]byte, len(memory))})
	return nil
}

// keepCarried notes what is carried into the step that begins.
func (r *Replica) keepCarried() {
	if !r.declared.Sync.Together() {
		return
	}
	for _, c := range r.carried {
		copy(c.before, c.memory)
	}
}

// saveCarried gives the depot what was carried into a step: as it was before
// the step, or as it is now.
func (r *Replica) saveCarried(step int, of func(carried) []byte) {
	if len(r.carried) == 0 || !r.declared.Sync.Together() {
		return
	}
	state := map[string]depot.Carried{}
	for _, c := range r.carried {
		state[c.name] = depot.Carried{Dtype: c.state.Dtype().String(), Shape: c.state.Shape().Clone(), Data: append([]byte(nil), of(c)...)}
	}
	lo, hi := r.Rows()
	r.job.depot.SaveCarried(uint64(step), lo, hi, state)
}
