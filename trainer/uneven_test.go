package trainer

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/plx-run/plx/trainer/checkpoint/saver"
)

// Workers that do not wait for each other may end in any order: the last
// checkpoint has all steps, and a job goes on from it whoever is ahead, also
// with a program that puts something together before its first step.
func TestCheckpointsOfUnevenEnds(t *testing.T) {
	for _, mode := range []string{"async", "ssp:1", "group:3"} {
		for _, ending := range []Ending{WaitForAll, JoinOthers} {
			t.Run(fmt.Sprint(mode, "/", ending), func(t *testing.T) {
				t.Parallel()
				dir, begun := t.TempDir(), []int{0, 0, 0}
				for _, more := range [][]int{{2, 9, 5}, {9, 2, 5}, {2, 3, 4}} {
					tj := newTestJobOn(t, hostNames(3), 2, everySteps(dir, 3), Arch("ps"), Sync(mode))
					ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
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

// A worker that wants to put something together with a chief that is done hears
// that it is.
func TestCollectivesAfterTheChief(t *testing.T) {
	tj := newTestJobOn(t, hostNames(2), 1, everySteps(t.TempDir(), 0), Arch("ps"), Sync("async"))
	errs := tj.end(func(_ context.Context, j *Job) error {
		ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
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

// A chief that is done makes the checkpoints that are asked for while others go
// on, and holds them where it is asked to.
func TestCheckpointsAfterTheChief(t *testing.T) {
	if testing.Short() {
		t.Skip("takes seconds")
	}
	t.Parallel()
	for _, hold := range []bool{false, true} {
		tj := newTestJobOn(t, hostNames(2), 2, everySteps(t.TempDir(), 0), Arch("ps"), Sync("ssp:1"))
		told := make(chan error, 1)
		errs := tj.end(func(_ context.Context, j *Job) error {
			ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
			defer cancel()
			r, err := j.Parallelize(ctx, regression{}.build, SGD(0.01), GlobalBatch(12))
			if err != nil || j.IsChief() {
				return err
			}
			lo, hi := r.Rows()
			for r.Steps() < 5 {
				if _, err := r.Step(ctx, regression{}.feed(r.Steps(), lo, hi)); err != nil {
					return err
				}
			}
			s := tj.jobs[0].session.Load().saving.saver
			s.Ask(saver.Request{Hold: hold, Workers: 2, Tell: func(_ int, _ time.Duration, err error) { told <- err }})
			select {
			case err = <-told:
			case <-ctx.Done():
				err = ctx.Err()
			}
			s.Resume(0)
			if err != nil {
				return fmt.Errorf("a checkpoint was asked for: %w", err)
			}
			_, err = r.Step(ctx, regression{}.feed(5, lo, hi))
			return err
		})
		if err := errors.Join(append(errs, tj.wait())...); err != nil {
			t.Errorf("%v\n%s", err, tj.logs[0])
		}
	}
}
