package data

import (
	"errors"
	"fmt"
	"iter"
	"sync"

	"github.com/plx-run/plx/trainer/random"
)

// Last says what happens to the samples at the end of an epoch that do not fill
// a batch.
type Last int

const (
	// Drop leaves them out of this epoch. They are other samples in each epoch.
	// Every batch is full.
	Drop Last = iota
	// Keep makes a short batch of them; see Size.
	Keep
	// Wrap fills the batch with the first samples of the next epoch. Every
	// batch is full. A sample can be in the batch twice, once for each epoch.
	Wrap
)

// EpochsConfig describes the epochs.
type EpochsConfig struct {
	Samples int    // samples in the dataset
	Batch   int    // rows of the global batch, for all workers together
	Seed    uint64 // seed of the job
	Last    Last
	Ordered bool // epochs keep the dataset's order and are not shuffled
}

// maxSamples bounds samples and batch. So products with a step's number stay
// below 2^63 for a billion steps.
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

// Epochs says which samples are in the global batch of each step. Each epoch is
// a permutation of the dataset that depends only on the seed and the epoch's
// number. Every worker computes the same permutation and takes its rows of it,
// so the global batch is the same for any number of workers. Any goroutine may
// ask for any step at any time.
type Epochs struct {
	config EpochsConfig
	stream random.Stream

	mu     sync.Mutex
	recent [2]drawn // orders of two epochs: most batches reach into at most two
	oldest int
}

// drawn is an epoch's order.
type drawn struct {
	epoch int
	order permutation // nil if none was drawn yet
}

// NewEpochs checks the configuration.
func NewEpochs(c EpochsConfig) (*Epochs, error) {
	if err := c.validate(); err != nil {
		return nil, err
	}
	return &Epochs{config: c, stream: random.New(c.Seed, "shuffle")}, nil
}

// cursor is a place in the training data: a number of whole epochs, and a
// number of samples of the next one.
type cursor struct{ epoch, position int }

// perEpoch is the number of steps in an epoch, for Drop and Keep.
func (e *Epochs) perEpoch() int {
	if e.config.Last == Keep {
		return (e.config.Samples + e.config.Batch - 1) / e.config.Batch
	}
	return e.config.Samples / e.config.Batch
}

// Steps returns the number of steps that a number of epochs takes.
func (e *Epochs) Steps(epochs int) int {
	if e.config.Last == Wrap {
		return (epochs*e.config.Samples + e.config.Batch - 1) / e.config.Batch
	}
	return epochs * e.perEpoch()
}

// cursor returns where a step's batch begins. Steps count from 0.
func (e *Epochs) cursor(step int) cursor {
	if step < 0 {
		panic(fmt.Sprintf("data: step %d of an epoch", step))
	}
	if e.config.Last == Wrap {
		taken := step * e.config.Batch
		return cursor{taken / e.config.Samples, taken % e.config.Samples}
	}
	n := e.perEpoch()
	return cursor{step / n, step % n * e.config.Batch}
}

// Size returns the number of rows in a step's batch. Under Keep the last batch
// of an epoch can be short; every other batch has the configured size.
func (e *Epochs) Size(step int) int {
	if e.config.Last != Keep {
		return e.config.Batch
	}
	return min(e.config.Batch, e.config.Samples-e.cursor(step).position)
}

// Rows appends the samples of rows [lo, hi) of a step's batch to into and
// returns it. It leaves out rows that a short batch does not have. With lo and
// hi of the full batch, a virtual worker can then have fewer rows or none. With
// those of Range(e.Size(step), v, V) the rows are divided evenly.
func (e *Epochs) Rows(step, lo, hi int, into []int) []int {
	at, n := e.cursor(step), e.config.Samples
	hi = min(hi, e.Size(step))
	if lo < 0 {
		panic(fmt.Sprintf("data: row %d of a batch", lo))
	}
	for lo < hi {
		position := at.position + lo
		order := e.order(at.epoch + position/n)
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

// All returns the steps from `from` up to but not including `to`, each with the
// samples of rows [lo, hi) of its batch. The caller owns the slices.
func (e *Epochs) All(from, to, lo, hi int) iter.Seq2[int, []int] {
	return func(yield func(int, []int) bool) {
		for step := from; step < to; step++ {
			if !yield(step, e.Rows(step, lo, hi, nil)) {
				return
			}
		}
	}
}
