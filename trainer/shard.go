package trainer

import (
	"context"
	"fmt"
	"runtime"

	"github.com/plx-run/plx/trainer/config"
	"github.com/plx-run/plx/trainer/data"
)

// DataShard is a worker's share of a dataset: the samples of all its virtual workers. Its
// name is not Shard because the function that makes it has that name.
type DataShard[T any] struct{ loader *data.Loader[T] }

// Shard gives every worker its share of a dataset, in global batches of so many
// rows: step n takes the samples [n*batch, (n+1)*batch) of d, and each virtual
// worker takes its equal part of them in order, as [Session.Rows] says. So a global
// batch is the same for any number of workers, and a program that resumes at a step
// reads what it would have read there.
//
// Every worker calls Shard with the same data. Workers whose data differs, as
// [data.Describe] tells, are refused by name. Shard reads in the background, on as
// many cores as the worker has, until ctx ends.
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

// Epochs is Shard for data that is read again and again, each time in another order
// that follows from the job's seed, see [data.Epochs].
func Epochs[T any](ctx context.Context, j *Job, d data.Dataset[T], batch int) (*DataShard[T], error) {
	epochs, err := data.Epochs(d, batch, j.Seed())
	if err != nil {
		return nil, err
	}
	return Shard(ctx, j, epochs, batch)
}

// Feed returns what [Session.Train] asks for feeds: what batch makes of this
// worker's samples of a step.
func (s *DataShard[T]) Feed(batch func(samples []T) (Feed, error)) func(step int) (Feed, error) {
	return func(step int) (Feed, error) {
		samples, err := s.Batch(step)
		if err != nil {
			return nil, err
		}
		return batch(samples)
	}
}

// Batch returns this worker's samples of a step: those of its first virtual worker,
// then those of the next. It returns io.EOF if the dataset has no whole batch for
// the step. The slice belongs to the caller.
func (s *DataShard[T]) Batch(step int) ([]T, error) { return s.loader.Batch(step) }
