package trainer

import (
	"context"
	"fmt"
	"runtime"

	"github.com/plx-run/plx/trainer/config"
	"github.com/plx-run/plx/trainer/data"
)

// DataShard is the part of a dataset that one worker reads: the samples of all
// its virtual workers. The function Shard creates it.
type DataShard[T any] struct{ loader *data.Loader[T] }

// Shard returns the part of the dataset d that this worker reads. batch is the
// number of samples in a global batch: step n uses the samples [n*batch,
// (n+1)*batch). Each virtual worker gets an equal part of a batch in order, as
// [Session.Rows] says. So a global batch is the same for any number of
// workers, and a program that resumes at step n reads the same samples as
// before.
//
// Every worker must call Shard with the same dataset. Shard compares the
// results of [data.Describe] and returns an error that names a worker whose
// data differs. It reads samples in the background until ctx ends, on this
// worker's part of the host's cores.
func Shard[T any](ctx context.Context, j *Job, d data.Dataset[T], batch int) (*DataShard[T], error) {
	rows, err := config.Rows(batch, j.virtual)
	if err != nil {
		return nil, err
	}
	if err := j.collect("compare the data", func() error { return j.network.group.Compare(ctx, data.Describe(d)) }); err != nil {
		return nil, fmt.Errorf("shard a dataset: %w", err)
	}
	own := j.part(j.WorkerID())
	indices := func(n int) []int {
		all := make([]int, 0, rows*own.Len())
		for i := n*batch + own.Lo*rows; i < n*batch+own.Hi*rows; i++ {
			all = append(all, i)
		}
		return all
	}
	cores := runtime.GOMAXPROCS(0) / max(1, j.LocalWorldSize())
	return &DataShard[T]{data.NewLoader(ctx, d, cores, d.Len()/batch, indices)}, nil
}

// Epochs is like Shard, but reads the dataset repeatedly, in a new random
// order each time. The order follows from the job's seed, see [data.Epochs].
func Epochs[T any](ctx context.Context, j *Job, d data.Dataset[T], batch int) (*DataShard[T], error) {
	epochs, err := data.Epochs(d, batch, j.Seed())
	if err != nil {
		return nil, err
	}
	return Shard(ctx, j, epochs, batch)
}

// Feed returns a function for [Session.Train]. That function reads this
// worker's samples of a step, and returns the Feed that the function batch
// makes of them.
func (s *DataShard[T]) Feed(batch func(samples []T) (Feed, error)) func(step int) (Feed, error) {
	return func(step int) (Feed, error) {
		samples, err := s.Batch(step)
		if err != nil {
			return nil, err
		}
		return batch(samples)
	}
}

// Batch returns this worker's samples of a step, in the order of its virtual
// workers. It returns io.EOF if the dataset has no complete batch left for the
// step. The slice belongs to the caller.
func (s *DataShard[T]) Batch(step int) ([]T, error) { return s.loader.Batch(step) }
