package data

import (
	"fmt"
)

// Dataset is a number of samples with random access. The datasets of this
// package are safe for several goroutines at once.
type Dataset[T any] interface {
	// Len is the number of samples.
	Len() int
	// At returns sample i, 0 <= i < Len(). The caller must not write to it.
	At(i int) (T, error)
}

// Slice is a dataset in memory.
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

// Part is implemented by a dataset that is one shard of a larger one. A dataset
// that wraps a shard should implement it too; then it is not sharded twice by
// mistake.
type Part interface {
	DataShard() (shard, of int) // of is 0 if the dataset is no shard
}

// sharded holds the elements i with i mod of == shard.
type sharded[T any] struct {
	from      Dataset[T]
	shard, of int
}

// Shard returns a shard of d: the elements whose index is shard modulo of, in
// order. All shards together hold each element once; their lengths differ by at
// most one. A shard of one is a shard too: sharding it again is an error.
//
// If the virtual workers shard a dataset, the samples of each do not depend on
// the number of workers. If the workers do, they depend on it.
func Shard[T any](d Dataset[T], shard, of int) (Dataset[T], error) {
	if of < 1 || shard < 0 || shard >= of {
		return nil, fmt.Errorf("shard a dataset: there is no shard %d of %d, want 0 <= shard < of", shard, of)
	}
	if p, ok := d.(Part); ok {
		if shard, of := p.DataShard(); of > 0 {
			return nil, hintedError{fmt.Errorf("shard a dataset: it is already shard %d of %d", shard, of),
				"shard the whole dataset once; for several virtual workers per worker, use the number of all virtual workers"}
		}
	}
	return sharded[T]{d, shard, of}, nil
}

func (s sharded[T]) Len() int { return (s.from.Len() + s.of - 1 - s.shard) / s.of }

func (s sharded[T]) At(i int) (T, error) {
	if err := checkIndex(i, s.Len()); err != nil {
		var none T
		return none, err
	}
	return s.from.At(i*s.of + s.shard)
}

func (s sharded[T]) DataShard() (shard, of int) { return s.shard, s.of }

// Range returns the piece [lo, hi) of n things that belongs to a shard:
// [shard*n/of, (shard+1)*n/of), rounded down. The pieces follow one another,
// cover each thing once, and differ by at most one in length. With n < of some
// are empty. Range panics if the shard does not exist.
func Range(n, shard, of int) (lo, hi int) {
	if n < 0 || of < 1 || shard < 0 || shard >= of {
		panic(fmt.Sprintf("data: there is no shard %d of %d of %d things", shard, of, n))
	}
	// shard*n would overflow for large n: floor(s*n/of) = s*q + floor(s*r/of).
	q, r := n/of, n%of
	return shard*q + shard*r/of, (shard+1)*q + (shard+1)*r/of
}
