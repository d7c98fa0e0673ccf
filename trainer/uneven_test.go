package trainer

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/plx-run/plx/internal/test/patience"
)

// In modes in which workers do not wait for each other, they may end in any
// order. The last checkpoint must contain all steps. A job must resume from
// it, even if its program calls a collective before the first step.
func TestCheckpointsAfterUnevenEnds(t *testing.T) {
	for _, mode := range []string{"async", "ssp:1", "group:3"} {
		for _, ending := range []Ending{WaitForAll, JoinOthers} {
			t.Run(fmt.Sprint(mode, "/", ending), func(t *testing.T) {
				t.Parallel()
				dir, begun := t.TempDir(), []int{0, 0, 0}
				for _, more := range [][]int{{2, 9, 5}, {9, 2, 5}, {2, 3, 4}} {
					tj := newTestJobOn(t, hostNames(3), 2, everySteps(dir, 3), Arch("ps"), Sync(mode))
					ctx, cancel := context.WithTimeout(t.Context(), patience.Limit)
					errs := tj.end(func(_ context.Context, j *Job) error {
						r, err := j.Parallelize(ctx, regression{}.build, SGD(0.01), GlobalBatch(12), AtEndOfData(ending))
						if err != nil {
							return err
						}
						if err := j.Barrier(ctx); err != nil {
							return err
						}
						rank, from := j.WorkerID(), r.Steps()
						if from != begun[rank] {
							return fmt.Errorf("begins after step %d, want %d", from, begun[rank])
						}
						lo, hi := r.Rows()
						for r.Steps() < from+more[rank] {
							if _, err := r.Step(ctx, regression{}.feed(r.Steps(), lo, hi)); err != nil {
								return err
							}
						}
						return nil
					})
					cancel()
					if err := errors.Join(append(errs, tj.wait())...); err != nil {
						t.Fatalf("%v more: %v\n%s", more, err, tj.logs[0])
					}
					for rank := range begun {
						begun[rank] += more[rank]
						if ending == JoinOthers {
							begun[rank]++ // nobody's step
						}
					}
				}
			})
		}
	}
}

// If a worker calls a collective after the chief has ended, the error must say
// that the chief has ended.
func TestCollectivesAfterTheChief(t *testing.T) {
	tj := newTestJobOn(t, hostNames(2), 1, everySteps(t.TempDir(), 0), Arch("ps"), Sync("async"))
	errs := tj.end(func(_ context.Context, j *Job) error {
		ctx, cancel := context.WithTimeout(t.Context(), patience.Limit)
		defer cancel()
		r, err := j.Parallelize(ctx, regression{}.build, SGD(0.01), GlobalBatch(12))
		if err != nil {
			return err
		}
		if err := j.Barrier(ctx); err != nil {
			return err
		}
		lo, hi := r.Rows()
		if _, err := r.Step(ctx, regression{}.feed(0, lo, hi)); err != nil || j.IsChief() {
			return err
		}
		if err := j.Barrier(ctx); err == nil || !strings.Contains(err.Error(), "has left") {
			return fmt.Errorf("the chief is done: %v", err)
		}
		return nil
	})
	if i := slices.IndexFunc(errs, func(err error) bool { return err != nil }); i >= 0 {
		t.Errorf("worker:%d: %v", i, errs[i])
	}
	if err := tj.wait(); err != nil {
		t.Error(err)
	}
}
