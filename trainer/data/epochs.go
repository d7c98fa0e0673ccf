package data

import (
	"errors"
	"fmt"
	"iter"
	"math/bits"
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
	recent [2]drawn // the orders drawn last, of two epochs: most batches reach into at most two
	oldest int      // index in recent of the order that the next one replaces
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

// cursor returns where a step's batch begins: after a number of whole epochs and
// a number of samples of the next one. Steps count from 0.
func (e *Epochs) cursor(step int) (epoch, position int) {
	if step < 0 {
		panic(fmt.Sprintf("data: step %d of an epoch", step))
	}
	if e.config.Last == Wrap {
		taken := step * e.config.Batch
		return taken / e.config.Samples, taken % e.config.Samples
	}
	n := e.perEpoch()
	return step / n, step % n * e.config.Batch
}

// Size returns the number of rows in a step's batch. Under Keep the last batch
// of an epoch can be short; every other batch has the configured size.
func (e *Epochs) Size(step int) int {
	if e.config.Last != Keep {
		return e.config.Batch
	}
	_, position := e.cursor(step)
	return min(e.config.Batch, e.config.Samples-position)
}

// Rows appends the samples of rows [lo, hi) of a step's batch to into and
// returns it. It leaves out rows that a short batch does not have. With lo and
// hi of the full batch, a virtual worker can then have fewer rows or none. With
// those of Range(e.Size(step), v, V) the rows are divided evenly.
func (e *Epochs) Rows(step, lo, hi int, into []int) []int {
	epoch, first := e.cursor(step)
	n := e.config.Samples
	hi = min(hi, e.Size(step))
	if lo < 0 {
		panic(fmt.Sprintf("data: row %d of a batch", lo))
	}
	for lo < hi {
		position := first + lo
		order := e.order(epoch + position/n)
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

// permutation maps 0..n-1 onto itself, each number once.
type permutation interface{ at(i int) int }

// maxTable is the largest number of samples for which an epoch's order is a
// table. Drawing a table of this size takes a few milliseconds. Larger orders
// take no memory.
const maxTable = 1 << 16

// newPermutation draws a permutation from a stream.
func newPermutation(n int, s random.Stream) permutation {
	if n <= maxTable {
		return newTable(n, s)
	}
	return newFeistel(n, s)
}

// inOrder is the identity.
type inOrder struct{}

func (inOrder) at(i int) int { return i }

// table is a permutation as a table.
type table []uint32

// newTable draws every permutation with the same probability, but for a bias of
// n/2^64 (Fisher and Yates, Durstenfeld's form).
func newTable(n int, s random.Stream) table {
	t := make(table, n)
	for i := range t {
		t[i] = uint32(i)
	}
	for i := n - 1; i > 0; i-- {
		x := s.Bits(uint64(i))
		j, _ := bits.Mul64(uint64(x[1])<<32|uint64(x[0]), uint64(i+1))
		t[i], t[j] = t[j], t[i]
	}
	return t
}

func (t table) at(i int) int { return int(t[i]) }

// feistel is a permutation that is computed at each place. It is a Feistel
// network over the smallest power of two that holds n, whose halves differ by
// at most one bit. It is repeated until the result is below n (Black and
// Rogaway, "Ciphers with arbitrary finite domains", CT-RSA 2002); that takes
// fewer than two repetitions on average. It reaches only a small part of all
// permutations, like any generator with a seed of 64 bits.
type feistel struct {
	stream   random.Stream
	n        uint64
	low, top uint // number of bits in the lower and in the upper half
}

// feistelRounds is even, so that the halves end with their first lengths. It is
// above the four rounds that make a permutation of random functions look
// random.
const feistelRounds = 8

func newFeistel(n int, s random.Stream) feistel {
	width := max(2, uint(bits.Len64(uint64(n-1))))
	return feistel{stream: s, n: uint64(n), top: width / 2, low: width - width/2}
}

func (f feistel) at(i int) int {
	x := f.once(uint64(i))
	for x >= f.n {
		x = f.once(x)
	}
	return int(x)
}

func (f feistel) once(x uint64) uint64 {
	left, right := x>>f.low, x&(1<<f.low-1)
	wide, narrow := f.low, f.top // bits of right, bits of left
	for round := range uint64(feistelRounds) {
		word := f.stream.Bits(round<<32 | right)[0]
		left, right = right, left^uint64(word)&(1<<narrow-1)
		wide, narrow = narrow, wide
	}
	return left<<wide | right
}
