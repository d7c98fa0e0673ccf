package trainer

import (
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"testing"
)

// countable lists the element types of slices that collectives accept.
type countable interface{ float32 | float64 | int64 }

// contribution returns the slice that a worker passes to a collective. It
// holds small integers, so that their sum does not depend on the order of
// additions.
func contribution[T countable](rank, n int) []T {
	x := make([]T, n)
	for i := range x {
		x[i] = T((rank*31 + i*7) % 13)
	}
	return x
}

func total[T countable](workers, n int) []T {
	sum := make([]T, n)
	for rank := range workers {
		for i, v := range contribution[T](rank, n) {
			sum[i] += v
		}
	}
	return sum
}

func everyone[T countable](workers, n int) (all []T) {
	for rank := range workers {
		all = append(all, contribution[T](rank, n)...)
	}
	return all
}

// collect7 calls all seven collectives with slices of T, and compares the
// results with plain loops.
func collect7[T countable](t *testing.T, j *Job, n int) error {
	ctx, w, rank := t.Context(), j.NumWorkers(), j.WorkerID()
	root := w - 1
	same := func(what string, err error, got, want []T) error {
		if err != nil || !slices.Equal(got, want) {
			return fmt.Errorf("%s of %d %T on worker:%d of %d: %.60s, want %.60s: %v", what, n, got, rank, w, fmt.Sprint(got), fmt.Sprint(want), err)
		}
		return nil
	}
	x := contribution[T](rank, n)
	errs := []error{j.Barrier(ctx), same("broadcast", j.Broadcast(ctx, x, root), x, contribution[T](root, n))}
	piece := make([]T, n)
	var from []T
	if rank == root {
		from = everyone[T](w, n)
	}
	errs = append(errs, same("scatter", j.Scatter(ctx, from, piece, root), piece, contribution[T](rank, n)))
	var into []T
	if rank == root {
		into = make([]T, w*n)
	}
	err := j.Gather(ctx, contribution[T](rank, n), into, root)
	if rank == root {
		errs = append(errs, same("gather", err, into, everyone[T](w, n)))
	}
	whole := make([]T, w*n)
	errs = append(errs, err, same("all-gather", j.AllGather(ctx, contribution[T](rank, n), whole), whole, everyone[T](w, n)))
	lo := rank*(n/w) + min(rank, n%w)
	hi := (rank+1)*(n/w) + min(rank+1, n%w)
	share := make([]T, hi-lo)
	errs = append(errs, same("reduce-scatter", j.ReduceScatter(ctx, contribution[T](rank, n), share), share, total[T](w, n)[lo:hi]))
	x = contribution[T](rank, n)
	errs = append(errs, same("all-reduce", j.AllReduce(ctx, x), x, total[T](w, n)))
	return errors.Join(errs...)
}

func TestCollectivesOfAJob(t *testing.T) {
	for _, workers := range []int{1, 2, 3, 5} {
		tj := newTestJob(t, workers, 0)
		errs := tj.all(func(j *Job) (err error) {
			for _, n := range []int{1, 7, 1000} {
				err = errors.Join(err, collect7[float32](t, j, n), collect7[float64](t, j, n), collect7[int64](t, j, n))
			}
			return err
		})
		if err := errors.Join(errs...); err != nil {
			t.Errorf("%d workers: %v", workers, err)
		}
	}
}

// A collective must reject slices of other types, and the error names the type
// and the collective. A wrong call ends the group, so each case uses a new
// job.
func TestCollectivesRefuseOtherTypes(t *testing.T) {
	ctx := t.Context()
	for _, bad := range []any{[]int{1}, []string{"x"}, 1.5, []int32{1}, [][]float32{{1}}, (*[]float32)(nil)} {
		for what, call := range map[string]func(j *Job) error{
			"broadcast":      func(j *Job) error { return j.Broadcast(ctx, bad, 0) },
			"scatter":        func(j *Job) error { return j.Scatter(ctx, bad, bad, 0) },
			"gather":         func(j *Job) error { return j.Gather(ctx, bad, bad, 0) },
			"all-gather":     func(j *Job) error { return j.AllGather(ctx, bad, bad) },
			"reduce-scatter": func(j *Job) error { return j.ReduceScatter(ctx, bad, bad) },
			"all-reduce":     func(j *Job) error { return j.AllReduce(ctx, bad) },
		} {
			err := call(soloJob(io.Discard))
			if err == nil || !strings.HasPrefix(err.Error(), what+": ") || !strings.Contains(err.Error(), fmt.Sprintf("%T: want []float32, []float64 or []int64", bad)) {
				t.Errorf("%s of %T: %v", what, bad, err)
			}
		}
	}
	for what, call := range map[string]func(j *Job) error{
		"no worker has rank 1": func(j *Job) error { return j.Broadcast(ctx, []float32{1}, 1) },
		"the same type":        func(j *Job) error { return j.AllGather(ctx, []float32{1}, []float64{1}) },
		"has 2 elements":       func(j *Job) error { return j.AllGather(ctx, []float32{1}, []float32{1, 2}) },
	} {
		if err := call(soloJob(io.Discard)); err == nil || !strings.Contains(err.Error(), what) {
			t.Errorf("got %v, want %q", err, what)
		}
	}
}

// If workers call different collectives, the error says which worker called
// what.
func TestDifferentCollectivesAreRefused(t *testing.T) {
	tj := newTestJob(t, 3, 0)
	errs := tj.all(func(j *Job) error {
		if j.WorkerID() == 2 {
			return j.Broadcast(t.Context(), []float32{1, 2}, 0)
		}
		return j.AllReduce(t.Context(), []float32{1, 2})
	})
	for rank, err := range errs {
		if err == nil || !strings.Contains(err.Error(), "worker:") || !strings.Contains(err.Error(), "same collectives") {
			t.Errorf("worker:%d: %v", rank, err)
		}
	}
}

// Programs may call collectives between training steps.
func TestCollectivesBetweenSteps(t *testing.T) {
	x := everything()["mlp with dropout"]
	want := x.alone(t, VirtualWorkers(6))
	feed := x.feed
	tj := newTestJob(t, 3, 0, VirtualWorkers(6))
	got := make([]trained, 3)
	errs := tj.all(func(j *Job) (err error) {
		mine := x
		mine.feed = func(step, from, to int) Feed {
			sum := []int64{int64(step)}
			if e := j.AllReduce(t.Context(), sum); e != nil || sum[0] != int64(3*step) {
				t.Errorf("step %d: %v, %v", step, sum, e)
			}
			return feed(step, from, to)
		}
		got[j.WorkerID()], err = mine.run(j)
		return err
	})
	if err := errors.Join(errors.Join(errs...), got[0].same(want)); err != nil {
		t.Error(err)
	}
}
