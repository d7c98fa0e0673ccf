package trainer

import (
	"fmt"
	"io"

	"github.com/plx-run/plx/trainer/data"
)

// DataShard is a worker's share of a dataset: the data shards of its virtual
// workers, one after the other from ShardID on.
type DataShard[T any] struct {
	shards []data.Dataset[T] // by own virtual worker
	first  int
	of     int
}

// Shard gives every worker its share of a dataset: element i belongs to data
// shard i mod NumShards. What is a share of something already is refused.
func Shard[T any](j *Job, d data.Dataset[T]) (*DataShard[T], error) {
	lo, hi := j.shards(j.WorkerID())
	s := &DataShard[T]{first: lo, of: j.leaves}
	for shard := lo; shard < hi; shard++ {
		part, err := data.Shard(d, shard, j.leaves)
		if err != nil {
			return nil, err
		}
		s.shards = append(s.shards, part)
	}
	return s, nil
}

// DataShard tells that s is a data shard, so that it is not sharded again.
func (s *DataShard[T]) DataShard() (shard, of int) { return s.first, s.of }

// Len is the number of elements.
func (s *DataShard[T]) Len() int {
	n := 0
	for _, part := range s.shards {
		n += part.Len()
	}
	return n
}

// At returns element i, in the order of the dataset.
func (s *DataShard[T]) At(i int) (T, error) {
	if i < 0 || i >= s.Len() {
		var none T
		return none, fmt.Errorf("element %d of a data shard of %d", i, s.Len())
	}
	return s.shards[i%len(s.shards)].At(i / len(s.shards))
}

// Batch returns the elements for a worker's n-th step, counted from 0: rows
// for its first virtual worker, then rows for the next. It returns io.EOF
// when one of them has not as many left.
func (s *DataShard[T]) Batch(n, rows int) ([]T, error) {
	if rows < 1 || n < 0 {
		return nil, fmt.Errorf("batch %d of %d rows: want 0 or more, and at least 1", n, rows)
	}
	batch := make([]T, 0, rows*len(s.shards))
	for _, part := range s.shards {
		if (n+1)*rows > part.Len() {
			return nil, io.EOF
		}
		for i := range rows {
			x, err := part.At(n*rows + i)
			if err != nil {
				return nil, err
			}
			batch = append(batch, x)
		}
	}
	return batch, nil
}
