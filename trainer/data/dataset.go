package data

import (
	"fmt"
	"iter"
)

// Dataset is a number of samples that can be had in any order. Readers of this
// package that hold their samples in memory are safe for several goroutines at
// once.
type Dataset[T any] interface {
	// Len is the number of samples.
	Len() int
	// At returns sample i, 0 <= i < Len(). It must not be written to.
	At(i int) (T, error)
}

// Slice is a dataset of what is in memory already.
type Slice[T any] []T

// Len is the number of elements.
func (s Slice[T]) Len() int { return len(s) }

// At returns element i.
func (s Slice[T]) At(i int) (T, error) {
	if err := checkIndex(i, len(s)); err != nil {
		var none T
		return none, err
	}
	return s[i], nil
}

func checkIndex(i, n int) error {
	if i < 0 || i >= n {
		return fmt.Errorf("sample %d of a dataset of %d", i, n)
	}
	return nil
}

// mapped is a dataset seen through a function.
type mapped[T, U any] struct {
	from Dataset[T]
	f    func(T) (U, error)
}

// Map is the dataset of f(d.At(i)), computed each time it is asked for. A data
// shard stays one: it cannot be sharded again through Map.
func Map[T, U any](d Dataset[T], f func(T) (U, error)) Dataset[U] {
	m := mapped[T, U]{from: d, f: f}
	if p, ok := d.(Part); ok {
		return mappedPart[T, U]{m, p}
	}
	return m
}

// mappedPart passes on that its dataset is a data shard.
type mappedPart[T, U any] struct {
	mapped[T, U]
	Part
}

func (m mapped[T, U]) Len() int { return m.from.Len() }

func (m mapped[T, U]) At(i int) (U, error) {
	x, err := m.from.At(i)
	if err != nil {
		var none U
		return none, err
	}
	return m.f(x)
}

// All is the sequence of a dataset's samples in order. It ends after the first
// error.
func All[T any](d Dataset[T]) iter.Seq2[T, error] {
	return func(yield func(T, error) bool) {
		for i := range d.Len() {
			x, err := d.At(i)
			if !yield(x, err) || err != nil {
				return
			}
		}
	}
}

// Stream is samples that can be had only in order, such as the lines of large
// files, and what is known of them: whether they are a data shard.
type Stream[T any] struct {
	all   iter.Seq2[T, error]
	shard int
	of    int // 0: not sharded
}

// NewStream returns the stream of a sequence, which must end after its first
// error. A sequence does not tell that it is one data shard of many: shard the
// stream, not what its All returned.
func NewStream[T any](all iter.Seq2[T, error]) Stream[T] { return Stream[T]{all: all} }

// All is the stream's sequence. It ends after the first error. It can be
// ranged over again if the sequence that the stream was made of can.
func (s Stream[T]) All() iter.Seq2[T, error] {
	if s.all == nil {
		return func(func(T, error) bool) {}
	}
	return s.all
}

// DataShard tells which data shard the stream is; of is 0 when it is none.
func (s Stream[T]) DataShard() (shard, of int) { return s.shard, s.of }

// MapStream is the stream of f of every sample. A data shard stays one.
func MapStream[T, U any](s Stream[T], f func(T) (U, error)) Stream[U] {
	all := func(yield func(U, error) bool) {
		for x, err := range s.All() {
			var y U
			if err == nil {
				y, err = f(x)
			}
			if !yield(y, err) || err != nil {
				return
			}
		}
	}
	return Stream[U]{all: all, shard: s.shard, of: s.of}
}
