package data

import (
	"errors"
	"fmt"
	"math/bits"
	"sync"

	"github.com/plx-run/plx/trainer/random"
)

// maxSamples bounds a dataset of epochs, and maxEpochs their number. So the number
// of a sample stays below 2^62.
const (
	maxSamples = 1 << 32
	maxEpochs  = 1 << 30
)

// Epochs returns the samples of d again and again, each time in another order,
// which depends only on the seed and the number of the epoch. An epoch has whole
// batches only: the samples at its end that fill no batch are left out. They are
// other samples in each epoch.
//
// So step n takes the samples from n*batch on, whatever was read before, and the
// batches are the same on every worker. The dataset is so long that no training
// reaches its end.
func Epochs[T any](d Dataset[T], batch int, seed uint64) (Dataset[T], error) {
	e, err := newEpochs(d, batch, seed)
	if err != nil {
		return nil, err
	}
	return e, nil
}

// Augment is Epochs of what f makes of the samples, in each epoch anew: f gets a sample
// and random numbers, which depend only on the seed, the number of the epoch and that of
// the sample in d. So a sample is the same on any worker, and after a restart. f is called
// by several goroutines at once.
func Augment[T, U any](d Dataset[T], batch int, seed uint64, f func(x T, s random.Stream) (U, error)) (Dataset[U], error) {
	e, err := newEpochs(d, batch, seed)
	if err != nil {
		return nil, err
	}
	return augmented[T, U]{e, random.New(seed, "augment"), f}, nil
}

type augmented[T, U any] struct {
	*epochs[T]
	stream random.Stream
	f      func(T, random.Stream) (U, error)
}

func (a augmented[T, U]) At(i int) (made U, err error) {
	if err := checkIndex(i, a.Len()); err != nil {
		return made, err
	}
	epoch, sample := a.place(i)
	x, err := a.from.At(sample)
	if err != nil {
		return made, err
	}
	return a.f(x, a.stream.Derive(uint64(epoch), uint64(sample)))
}

func newEpochs[T any](d Dataset[T], batch int, seed uint64) (*epochs[T], error) {
	n := d.Len()
	switch {
	case n < 1:
		return nil, errors.New("epochs: the dataset is empty")
	case n > maxSamples:
		return nil, fmt.Errorf("epochs: %d samples, at most %d", n, int64(maxSamples))
	case batch < 1:
		return nil, fmt.Errorf("epochs: a batch of %d rows, want at least 1", batch)
	case batch > n:
		return nil, fmt.Errorf("epochs: %d samples fill no batch of %d: take a smaller batch", n, batch)
	}
	return &epochs[T]{from: d, whole: n / batch * batch, stream: random.New(seed, "shuffle")}, nil
}

type epochs[T any] struct {
	from   Dataset[T]
	whole  int // samples of an epoch
	stream random.Stream

	mu     sync.Mutex
	recent [2]drawn // the orders drawn last, of two epochs: a loader reads ahead into the next one
	oldest int      // index in recent of the order that the next one replaces
}

// drawn is an epoch's order.
type drawn struct {
	epoch int
	order permutation // nil if none was drawn yet
}

func (e *epochs[T]) Len() int         { return e.whole * maxEpochs }
func (e *epochs[T]) Describe() string { return Describe(e.from) }

func (e *epochs[T]) At(i int) (T, error) {
	if err := checkIndex(i, e.Len()); err != nil {
		var none T
		return none, err
	}
	_, sample := e.place(i)
	return e.from.At(sample)
}

// place returns the epoch of sample i, and its number in the dataset.
func (e *epochs[T]) place(i int) (epoch, sample int) {
	epoch = i / e.whole
	return epoch, e.order(epoch).at(i % e.whole)
}

// order returns an epoch's permutation.
func (e *epochs[T]) order(epoch int) permutation {
	e.mu.Lock()
	defer e.mu.Unlock()
	for _, d := range e.recent {
		if d.order != nil && d.epoch == epoch {
			return d.order
		}
	}
	d := drawn{epoch, newPermutation(e.from.Len(), e.stream.Derive(uint64(epoch)))}
	e.recent[e.oldest] = d
	e.oldest = 1 - e.oldest
	return d.order
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
