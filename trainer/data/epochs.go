package data

import (
	"errors"
	"fmt"
	"math/bits"
	"sync"

	"github.com/plx-run/plx/trainer/random"
)

// maxSamples is the largest number of samples that a dataset passed to Epochs
// may have. maxEpochs is the number of epochs that Epochs returns. Together
// they keep every sample index below 2^62.
const (
	maxSamples = 1 << 32
	maxEpochs  = 1 << 30
)

// Epochs returns a dataset that repeats the samples of d, in a different order
// in each epoch. The order depends only on the seed and the number of the
// epoch. An epoch consists of whole batches: the samples at its end that do
// not fill a batch are left out. Each epoch leaves out different samples.
//
// The batch of step n begins at sample n*batch of the dataset, so every worker
// computes the same batches. The dataset has 2^30 epochs, more than any
// training reads.
func Epochs[T any](d Dataset[T], batch int, seed uint64) (Dataset[T], error) {
	e, err := newEpochs(d, batch, seed)
	if err != nil {
		return nil, err
	}
	return e, nil
}

// Augment is like Epochs, but applies f to every sample, again in each epoch.
// f receives a sample and a stream of random numbers. The stream depends only
// on the seed, the number of the epoch and the index of the sample in d. The
// result is therefore the same on every worker and after a restart. Several
// goroutines may call f at once.
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
	whole  int // samples per epoch: the largest multiple of the batch size in the dataset
	stream random.Stream

	mu     sync.Mutex
	recent [2]drawn // the cached orders of the last two epochs; two, because a loader reads ahead into the next epoch; guarded by mu
	oldest int      // index in recent of the older order, which the next order replaces; guarded by mu
}

// drawn is the order of the samples in one epoch.
type drawn struct {
	epoch int
	order permutation // nil means that this cache entry is still empty
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

// place returns the epoch to which sample i belongs, and the index of that
// sample in the underlying dataset.
func (e *epochs[T]) place(i int) (epoch, sample int) {
	epoch = i / e.whole
	return epoch, e.order(epoch).at(i % e.whole)
}

// order returns the permutation of samples for an epoch. It caches the
// permutations of two epochs.
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

// permutation is a one-to-one mapping of the numbers 0 to n-1 to themselves.
type permutation interface{ at(i int) int }

// maxTable is the largest number of samples whose order is stored as a table.
// Shuffling a table of this size takes a few milliseconds. Larger orders are
// computed by a Feistel network, without a table.
const maxTable = 1 << 16

// newPermutation returns a random permutation of 0 to n-1 that depends only on
// n and s.
func newPermutation(n int, s random.Stream) permutation {
	if n <= maxTable {
		return newTable(n, s)
	}
	return newFeistel(n, s)
}

// table is a permutation stored as an array: i maps to element i.
type table []uint32

// newTable returns a random permutation by the Fisher-Yates shuffle
// (Durstenfeld's form). All permutations are equally likely, except for a bias
// of n/2^64.
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

// feistel is a permutation that needs no table, because it computes each value
// on demand. It applies a Feistel network to numbers of just enough bits to
// hold n-1. A result of n or more goes through the network again, until it is
// below n (cycle walking: Black and Rogaway, "Ciphers with arbitrary finite
// domains", CT-RSA 2002). On average this takes fewer than two passes. Only a
// small part of all permutations is possible, because the seed has 64 bits.
type feistel struct {
	stream   random.Stream
	n        uint64
	low, top uint // bits in the lower and in the upper half of a number; low is top or top+1
}

// feistelRounds is the number of rounds of the Feistel network. It must be
// even, so that the two halves end with their original lengths. Four rounds
// would already look like a random permutation if the round functions were
// random (Luby and Rackoff 1988).
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
	wide, narrow := f.low, f.top // number of bits of right and of left; they swap after each round
	for round := range uint64(feistelRounds) {
		word := f.stream.Bits(round<<32 | right)[0]
		left, right = right, left^uint64(word)&(1<<narrow-1)
		wide, narrow = narrow, wide
	}
	return left<<wide | right
}
