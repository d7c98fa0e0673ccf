package data

import (
	"fmt"
	"slices"
)

// Part is what a dataset implements that is one data shard of a larger one. A
// dataset of a program's own that wraps a data shard should pass it on; then
// it is not sharded twice by mistake.
type Part interface {
	DataShard() (shard, of int) // of is 0 for what is no data shard
}

// nestedError is the refusal to shard what is a data shard already.
type nestedError struct{ shard, of int }

func (e nestedError) Error() string {
	return fmt.Sprintf("shard a dataset: it is data shard %d of %d already", e.shard, e.of)
}

// Hint says what to do instead.
func (nestedError) Hint() string {
	return "shard once, the whole dataset; with more shards than one per worker, shard by the product"
}

// checkShard refuses numbers that make no data shard and a second sharding.
func checkShard(d any, shard, of int) error {
	if of < 1 || shard < 0 || shard >= of {
		return fmt.Errorf("shard a dataset: there is no data shard %d of %d, want 0 <= shard < of", shard, of)
	}
	if p, ok := d.(Part); ok {
		if shard, of := p.DataShard(); of > 0 {
			return nestedError{shard, of}
		}
	}
	return nil
}

// sharded holds the elements i with i mod of == shard.
type sharded[T any] struct {
	from      Dataset[T]
	shard, of int
}

// Shard is a data shard of d: the elements whose index is shard modulo of, in
// order. All shards together hold each element once; their lengths differ by
// one at most. A data shard of one is a data shard too: sharding it again is
// an error, whatever the numbers.
//
// Sharded by virtual worker the samples of a virtual worker do not depend on
// the number of workers; sharded by worker they do.
func Shard[T any](d Dataset[T], shard, of int) (Dataset[T], error) {
	if err := checkShard(d, shard, of); err != nil {
		return nil, err
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

// ShardStream is Shard for a stream. Every shard reads the whole stream and
// leaves out what is not its own; an error ends all of them.
func ShardStream[T any](s Stream[T], shard, of int) (Stream[T], error) {
	if err := checkShard(s, shard, of); err != nil {
		return Stream[T]{}, err
	}
	all := func(yield func(T, error) bool) {
		next := shard // how many elements to pass over
		for x, err := range s.All() {
			if err == nil && next > 0 {
				next--
				continue
			}
			if !yield(x, err) || err != nil {
				return
			}
			next = of - 1
		}
	}
	return Stream[T]{all: all, shard: shard, of: of}, nil
}

// Range is the half-open piece [lo, hi) of n things that belongs to shard of
// `of`: [shard*n/of, (shard+1)*n/of), divided downwards. The pieces of all
// shards follow one another, cover each thing once and differ by one in length
// at most; with n < of some are empty. A shard that does not exist is a panic,
// as an index out of range is.
func Range(n, shard, of int) (lo, hi int) {
	if n < 0 || of < 1 || shard < 0 || shard >= of {
		panic(fmt.Sprintf("data: there is no shard %d of %d of %d things", shard, of, n))
	}
	// shard*n would overflow for large n: floor(s*n/of) = s*q + floor(s*r/of).
	q, r := n/of, n%of
	return shard*q + shard*r/of, (shard+1)*q + (shard+1)*r/of
}

// FileShards returns the files that belong to a data shard: the piece that
// Range gives of the names in sorted order, as hosts list a folder in orders
// of their own. With fewer files than shards some shards have none. The
// argument is not changed.
func FileShards(names []string, shard, of int) ([]string, error) {
	if err := checkShard(nil, shard, of); err != nil {
		return nil, err
	}
	sorted := slices.Sorted(slices.Values(names))
	lo, hi := Range(len(sorted), shard, of)
	return sorted[lo:hi:hi], nil
}
