package trainer

import (
	"context"
	"errors"
	"fmt"
)

// The collectives put slices of all workers together; every worker must call
// the same ones in the same order. x, from and into are []float32, []float64
// or []int64. They return an error that names the worker to blame when one is
// lost, calls something else or brings another length, and in bounded time
// when ctx ends. They may be used with and without Parallelize.

// Broadcast copies x of worker root to x of all others.
func (j *Job) Broadcast(ctx context.Context, x any, root int) error {
	return j.collect("broadcast", func() error { return j.network.group.Broadcast(ctx, x, root) })
}

// Scatter cuts from of worker root in equal parts, one per worker in order,
// and copies each to its worker's into. Others may give nil for from.
func (j *Job) Scatter(ctx context.Context, from, into any, root int) error {
	return j.collect("scatter", func() error { return j.network.group.Scatter(ctx, from, into, root) })
}

// Gather copies from of every worker to into of worker root, in the order of
// ranks. Others may give nil for into.
func (j *Job) Gather(ctx context.Context, from, into any, root int) error {
	return j.collect("gather", func() error { return j.network.group.Gather(ctx, from, into, root) })
}

// AllGather copies from of every worker to into of all, in the order of ranks.
func (j *Job) AllGather(ctx context.Context, from, into any) error {
	return j.collect("all-gather", func() error { return j.network.group.AllGather(ctx, from, into) })
}

// ReduceScatter adds from of all workers and gives each its share of the sum:
// n elements are cut in order of the ranks, n/workers for each and one more
// for the first n mod workers.
func (j *Job) ReduceScatter(ctx context.Context, from, into any) error {
	return j.collect("reduce-scatter", func() error { return j.network.group.ReduceScatter(ctx, from, into) })
}

// AllReduce replaces x on every worker by the sum of all, the same bits on
// each.
func (j *Job) AllReduce(ctx context.Context, x any) error {
	return j.collect("all-reduce", func() error { return j.network.group.AllReduce(ctx, x) })
}

// Barrier returns when all workers have called it.
func (j *Job) Barrier(ctx context.Context) error {
	return j.collect("barrier", func() error { return j.network.group.Barrier(ctx) })
}

// Any tells all workers whether one of them said yes. It is how they decide
// together to stop early.
func (j *Job) Any(ctx context.Context, yes bool) (bool, error) {
	votes := []int64{0}
	if yes {
		votes[0] = 1
	}
	err := j.AllReduce(ctx, votes)
	return votes[0] > 0, err
}

func (j *Job) collect(what string, do func() error) error {
	defer j.log.waiting(func() string { return what })()
	if err := do(); err != nil {
		return fmt.Errorf("%s: %w", what, err)
	}
	return nil
}

// CheckParameters compares every variable that workers hold on every worker,
// bit by bit, and names the first that differs and where. All workers must
// call it, after the same step of synchronous training. Rows of embeddings
// have one shard holder each and nothing to compare.
func (j *Job) CheckParameters(ctx context.Context) error {
	r := j.replica.Load()
	if r == nil {
		return errors.New("check parameters: the job has no replica: call Parallelize first")
	}
	return r.compare(ctx)
}
