package trainer

import (
	"fmt"
	"io"

	"github.com/plx-run/plx/trainer/data"
)

// DataShard is a worker's share of a dataset: the elements of its virtual workers,
// one virtual worker after the other from ShardID on.
type DataShard[T any] struct {
	shards []data.Dataset[T] // by virtual worker of this worker
	first  int               // number of this worker's first virtual worker
	of     int               // number of virtual workers of the job
}

// Shard gives every worker its share of a dataset: element i belongs to virtual
// worker i mod NumShards. It refuses a dataset that is a share already.
func Shard[T any](j *Job, d data.Dataset[T]) (*DataShard[T], error) {
	own := j.part(j.WorkerID())
	s := &DataShard[T]{first: own.Lo, of: j.virtual}
	for shard := own.Lo; shard < own.Hi; shard++ {
		part, err := data.Shard(d, shard, j.virtual)
		if err != nil {
			return nil, err
		}
		s.shards = append(s.shards, part)
	}
	return s, nil
}

// DataShard is which share s is, and of how many. Shard refuses datasets that have
// this method.
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
		return none, fmt.Errorf("element %d of a share of %d", i, s.Len())
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
