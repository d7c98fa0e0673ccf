package data

import (
	"errors"
	"fmt"
	"iter"
	"sync"

	"github.com/plx-run/plx/trainer/random"
)

// Last is what becomes of the samples at the end of an epoch that fill no
// batch.
type Last int

const (
	// Drop leaves them out of this epoch; which samples these are differs
	// from epoch to epoch. Every batch is full.
	Drop Last = iota
	// Keep makes a short batch of them: see Size.
	Keep
	// Wrap fills the batch with the first samples of the next epoch. Every
	// batch is full; a sample can be in the batch twice, once for each epoch.
	Wrap
)

// EpochsConfig says what the epochs are of.
type EpochsConfig struct {
	Samples int    // in the dataset
	Batch   int    // rows of the global batch, all workers together
	Seed    uint64 // of the job
	Last    Last
	Ordered bool // every epoch in the dataset's own order, not shuffled
}

// maxSamples bounds samples and batch, so that products with a step's number
// stay below 2^63 for a billion steps.
const maxSamples = 1 << 32

func (c EpochsConfig) validate() error {
	switch {
	case c.Samples < 1:
		return errors.New("epochs: the dataset is empty")
	case c.Samples > maxSamples:
		return fmt.Errorf("epochs: %d samples, at most %d", c.Samples, int64(maxSamples))
	case c.Batch < 1 || c.Batch > maxSamples:
		return fmt.Errorf("epochs: a batch of %d rows, want 1 to %d", c.Batch, int64(maxSamples))
	case c.Last < Drop || c.Last > Wrap:
		return fmt.Errorf("epochs: last batch policy %d, want Drop, Keep or Wrap", c.Last)
	case c.Last == Drop && c.Batch > c.Samples:
		return fmt.Errorf("epochs: %d samples fill no batch of %d: take a smaller batch, or Wrap or Keep", c.Samples, c.Batch)
	}
	return nil
}

// Epochs says which samples are in the global batch of each step. Each epoch
// is a permutation of the dataset that depends on the seed and the epoch's
// number alone: every worker computes the same and takes its rows of it, so
// that the global batch is the same for any number of workers. Any step can be
// asked for at any time, from any goroutine.
type Epochs struct {
	config EpochsConfig
	stream random.Stream

	mu     sync.Mutex
	recent [2]drawn // a batch reaches into two epochs at most in most uses
	oldest int
}

// drawn is an epoch's order.
type drawn struct {
	epoch int
	order permutation // nil: none yet
}

// NewEpochs checks the configuration.
func NewEpochs(c EpochsConfig) (*Epochs, error) {
	if err := c.validate(); err != nil {
		return nil, err
	}
	return &Epochs{config: c, stream: random.New(c.Seed, "shuffle")}, nil
}

// Cursor is a place in the training data: so many whole epochs, and so many
// samples of the next one. It is what a checkpoint keeps.
type Cursor struct {
	Epoch    int `json:"epoch"`
	Position int `json:"position"`
}

// perEpoch is the number of steps in an epoch, for Drop and Keep.
func (e *Epochs) perEpoch() int {
	if e.config.Last == Keep {
		return (e.config.Samples + e.config.Batch - 1) / e.config.Batch
	}
	return e.config.Samples / e.config.Batch
}

// Steps is the number of steps after which every sample that the epochs do not
// drop was in a batch as many times as there are epochs.
func (e *Epochs) Steps(epochs int) int {
	if e.config.Last == Wrap {
		return (epochs*e.config.Samples + e.config.Batch - 1) / e.config.Batch
	}
	return epochs * e.perEpoch()
}

// Cursor is where a step's batch begins. Steps count from 0.
func (e *Epochs) Cursor(step int) Cursor {
	if step < 0 {
		panic(fmt.Sprintf("data: step %d of an epoch", step))
	}
	if e.config.Last == Wrap {
		taken := step * e.config.Batch
		return Cursor{taken / e.config.Samples, taken % e.config.Samples}
	}
	n := e.perEpoch()
	return Cursor{step / n, step % n * e.config.Batch}
}

// Step is the step whose batch begins at a cursor; an error when none does,
// as when the cursor is of a run with another batch or dataset.
func (e *Epochs) Step(c Cursor) (int, error) {
	step := -1
	switch {
	case c.Epoch < 0 || c.Position < 0 || c.Position >= e.config.Samples:
	case e.config.Last == Wrap:
		step = (c.Epoch*e.config.Samples + c.Position) / e.config.Batch
	default:
		step = c.Epoch*e.perEpoch() + c.Position/e.config.Batch
	}
	if step < 0 || e.Cursor(step) != c {
		return 0, fmt.Errorf("epochs: no step begins at epoch %d, position %d, with %d samples in batches of %d",
			c.Epoch, c.Position, e.config.Samples, e.config.Batch)
	}
	return step, nil
}

// Size is the number of rows in a step's batch: the configured one but for the
// last of an epoch under Keep.
func (e *Epochs) Size(step int) int {
	if e.config.Last != Keep {
		return e.config.Batch
	}
	return min(e.config.Batch, e.config.Samples-e.Cursor(step).Position)
}

// Rows appends the samples of rows [lo, hi) of a step's batch to into and
// returns it. Rows that a short batch does not have are left out: with lo and
// hi from the full batch a virtual worker can have fewer or none; with those
// of Range(e.Size(step), v, V) they are spread evenly.
func (e *Epochs) Rows(step, lo, hi int, into []int) []int {
	at, n := e.Cursor(step), e.config.Samples
	hi = min(hi, e.Size(step))
	if lo < 0 {
		panic(fmt.Sprintf("data: row %d of a batch", lo))
	}
	for lo < hi {
		position := at.Position + lo
		order := e.order(at.Epoch + position/n)
		end := min(hi, lo+n-position%n) // where this epoch ends
		for i := position % n; lo < end; i, lo = i+1, lo+1 {
			into = append(into, order.at(i))
		}
	}
	return into
}

// order returns an epoch's permutation.
func (e *Epochs) order(epoch int) permutation {
	if e.config.Ordered {
		return inOrder{}
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	for _, d := range e.recent {
		if d.order != nil && d.epoch == epoch {
			return d.order
		}
	}
	d := drawn{epoch, newPermutation(e.config.Samples, e.stream.Derive(uint64(epoch)))}
	e.recent[e.oldest] = d
	e.oldest = 1 - e.oldest
	return d.order
}

// All is the sequence of steps from `from` up to but not including `to`, each
// with the samples of rows [lo, hi) of its batch. The slice is the caller's.
func (e *Epochs) All(from, to, lo, hi int) iter.Seq2[int, []int] {
	return func(yield func(int, []int) bool) {
		for step := from; step < to; step++ {
			if !yield(step, e.Rows(step, lo, hi, nil)) {
				return
			}
		}
	}
}
