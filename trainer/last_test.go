package trainer

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/plx-run/plx/internal/test/patience"
	"github.com/plx-run/plx/trainer/checkpoint/saver"
	"github.com/plx-run/plx/trainer/cluster"
)

// inThisStep requests a checkpoint and returns the step at which it was made.
func inThisStep(t *testing.T, s *saver.Saver, r saver.Request) (step int) {
	t.Helper()
	told := make(chan error, 1)
	r.Tell = func(at int, _ time.Duration, err error) { step = at; told <- err }
	s.RequestSave(r)
	select {
	case err := <-told:
		if err != nil {
			t.Error(err)
		}
	case <-time.After(patience.Limit):
		t.Error("nobody answers")
	}
	return step
}

// After its own last step, the chief must still save checkpoints of the steps
// that other workers take, and pause the job if requested. When all workers
// are done, it makes no further checkpoint.
func TestCheckpointsAfterTheChiefsLastStep(t *testing.T) {
	if testing.Short() {
		t.Skip("takes seconds")
	}
	for _, mode := range []string{"async", "ssp:9", "group:2"} {
		t.Run(mode, func(t *testing.T) {
			t.Parallel()
			testSaveBehindTheChiefsLastStep(t, mode)
		})
	}
}

func testSaveBehindTheChiefsLastStep(t *testing.T, mode string) {
	dir, asked, each := t.TempDir(), make(chan struct{}), regression{}
	for run, steps := range [][]int{{5, 9}, {5, 12}} {
		tj := newTestJobOn(t, hostNames(2), 2, VirtualWorkers(6), everySteps(dir, 0), Arch("ps"), Sync(mode))
		go func() {
			defer close(asked)
			if !eventuallyAt(t, tj.jobs[0], 5) || run > 0 {
				return
			}
			s := tj.jobs[0].session.Load().saving.saver
			if step := inThisStep(t, s, saver.Request{}); step != 5 {
				t.Errorf("%s: saved behind step %d, want 5", mode, step)
			}
			refused := make(chan error, 1)
			s.RequestSave(saver.Request{Hold: true, Workers: 3, Tell: func(_ int, _ time.Duration, err error) { refused <- err }})
			if err := <-refused; err == nil || !strings.Contains(err.Error(), "the job can resume only with 2 workers, as now, not with 3") {
				t.Errorf("%s: asked to go on with another worker: %v", mode, err)
			}
			if w := (&task{job: tj.jobs[0]}).statusMessage(cluster.Heartbeat); w.Step != 5 || w.Loss == "" {
				t.Errorf("%s: a chief that is done says %+v", mode, w)
			}
			inThisStep(t, s, saver.Request{Hold: true, Number: 1, Workers: 2})
			s.Resume(1)
		}()
		errs := tj.end(func(ctx context.Context, j *Job) error {
			r, err := j.Parallelize(ctx, each.build, SGD(0.01), GlobalBatch(12))
			if err != nil {
				return err
			}
			begin := []int{0, 0}
			if run > 0 {
				begin = []int{5, 9}
			}
			if r.Steps() != begin[j.WorkerID()] {
				return fmt.Errorf("begins after step %d, want %d", r.Steps(), begin[j.WorkerID()])
			}
			from, to := r.Rows()
			for r.Steps() < steps[j.WorkerID()] {
				if r.Steps() == 7 {
					<-asked
				}
				if _, err := r.Step(ctx, each.feed(r.Steps(), from, to)); err != nil {
					return err
				}
			}
			return nil
		})
		if err := errors.Join(append(errs, tj.wait())...); err != nil {
			t.Fatalf("%s, run %d: %v\n%s", mode, run, err, tj.logs[0])
		}
		<-asked
		if step := inThisStep(t, tj.jobs[0].session.Load().saving.saver, saver.Request{}); step != 5 {
			t.Errorf("%s, run %d: when all is done: behind step %d, want 5", mode, run, step)
		}
		if said := tj.logs[0].String(); run > 0 && !strings.Contains(said, "each worker goes on where it was, after steps 5 to 9") {
			t.Errorf("%s: does not say where it goes on:\n%s", mode, said)
		}
		asked = make(chan struct{})
	}
}

// A request that comes while the last checkpoint is made, or just before, must
// get that checkpoint's step as its result.
func TestRequestAtTheEndGetsLastCheckpoint(t *testing.T) {
	each, told := regression{}, make(chan error, 1)
	tj := newTestJobOn(t, hostNames(2), 1, VirtualWorkers(6), everySteps(t.TempDir(), 4))
	errs := tj.end(func(ctx context.Context, j *Job) error {
		r, err := j.Parallelize(ctx, each.build, SGD(0.01), GlobalBatch(12))
		if err != nil {
			return err
		}
		from, to := r.Rows()
		for r.Steps() < 8 {
			eventuallyFree(j)
			if _, err := r.Step(ctx, each.feed(r.Steps(), from, to)); err != nil {
				return err
			}
		}
		if j.IsChief() {
			r.saving.saver.RequestSave(saver.Request{Tell: func(step int, _ time.Duration, err error) {
				if step != 8 {
					err = errors.Join(err, fmt.Errorf("behind step %d, want 8", step))
				}
				told <- err
			}})
		}
		return nil
	})
	if err := errors.Join(append(errs, tj.wait())...); err != nil {
		t.Fatalf("%v\n%s", err, tj.logs[0])
	}
	if err := <-told; err != nil {
		t.Error(err)
	}
	if step := inThisStep(t, tj.jobs[0].session.Load().saving.saver, saver.Request{}); step != 8 {
		t.Errorf("afterwards: behind step %d, want 8", step)
	}
}

// eventuallyFree waits until no checkpoint is being written, so that the chief
// can begin another.
func eventuallyFree(j *Job) {
	for end := time.Now().Add(patience.Limit); j.IsChief() && j.network.store.Busy() && time.Now().Before(end); {
		time.Sleep(time.Millisecond)
	}
}

// eventuallyAt waits until a worker has begun the given number of steps. It
// returns false if the test ends before that.
func eventuallyAt(t *testing.T, j *Job, steps int64) bool {
	for j.progress.steps.Load() < steps {
		select {
		case <-t.Context().Done():
			return false
		case <-time.After(time.Millisecond):
		}
	}
	return true
}
