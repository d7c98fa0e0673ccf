package trainer

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/plx-run/plx/trainer/config"
)

// endsAfter returns a program that takes steps[rank] training steps on the
// worker with that rank. It calls took with each result.
func endsAfter(steps []int, ending Ending, took func(rank, step int, result Result, err error)) func(context.Context, *Job) error {
	return func(ctx context.Context, j *Job) error {
		r, err := j.Parallelize(ctx, regression{}.build, SGD(0.1), GlobalBatch(12), AtEndOfData(ending))
		if err != nil {
			return err
		}
		from, to := r.Rows()
		for step := range steps[j.WorkerID()] {
			result, err := r.Step(ctx, regression{}.feed(step, from, to))
			took(j.WorkerID(), step, result, err)
			if err != nil {
				return err
			}
		}
		return nil
	}
}

// architectures lists the values of --arch for synchronous jobs, each with a
// number of servers.
var architectures = []architecture{{"ps", 2}, {"allreduce", 0}}

// With WaitForAll, all workers must take the same number of steps. If a worker
// ends earlier, the errors of the others name it.
func TestWaitForAllNamesWorkerThatLeft(t *testing.T) {
	for _, at := range architectures {
		tj := newTestJob(t, 3, at.servers, Arch(at.arch))
		errs := tj.end(endsAfter([]int{5, 5, 3}, WaitForAll, func(int, int, Result, error) {}))
		for rank, err := range errs[:2] {
			if err == nil || !strings.Contains(err.Error(), "worker:2") || !strings.Contains(err.Error(), "stopped after 3 steps") {
				t.Errorf("%s: worker:%d: %v", at.arch, rank, err)
			}
		}
	}
}

// With JoinOthers, workers without data take part in the others' steps, and
// the mean of the loss is taken over the workers with data.
func TestMeanExcludesWorkersWithoutData(t *testing.T) {
	for _, at := range architectures {
		for _, steps := range [][]int{{3, 6, 4}, {6, 3, 3}, {0, 2, 5}} {
			tj := newTestJob(t, 3, at.servers, Arch(at.arch), flags(func(c *config.Config) { c.Digest = true }))
			losses := make([][]float64, 3)
			errs := tj.end(endsAfter(steps, JoinOthers, func(rank, _ int, result Result, _ error) {
				losses[rank] = append(losses[rank], result.Loss)
			}))
			if err := errors.Join(errors.Join(errs...), tj.wait()); err != nil {
				t.Errorf("%v, %s: %v", steps, at.arch, err)
			}
			var twin regression
			for step := range max(steps[0], steps[1], steps[2]) {
				var x, y []float64
				for rank, n := range steps {
					if step < n {
						a, b := twin.rows(step, rank*4, rank*4+4)
						x, y = append(x, a...), append(y, b...)
					}
				}
				done := twin.look(x, y)
				twin.apply(done, 0.1, 0)
				for rank, n := range steps {
					if step < n && !near(losses[rank][step], done.loss) {
						t.Errorf("%v, %s: worker:%d, step %d: loss %v, the twin has %v", steps, at.arch, rank, step, losses[rank][step], done.loss)
					}
				}
			}
			for rank, j := range tj.jobs {
				r := j.session.Load()
				if err := allNear("w", floats64(r.training.group.Memory()[0]), twin.w[:]); err != nil || r.step != max(steps[0], steps[1], steps[2]) {
					t.Errorf("%v, %s: worker:%d at step %d: %v", steps, at.arch, rank, r.step, err)
				}
			}
			want := fmt.Sprintf("digest step=%d sha256=", max(steps[0], steps[1], steps[2]))
			if got := tj.jobs[0].out.(*bytes.Buffer).String(); !strings.HasPrefix(got, want) || strings.Count(got, "\n") != 1 {
				t.Errorf("%v, %s: the chief printed %q", steps, at.arch, got)
			}
		}
	}
}

// With EndTogether, all workers end after the first step for which one of them
// has no data.
func TestEndTogetherStopsAllWorkers(t *testing.T) {
	for _, at := range architectures {
		for _, steps := range [][]int{{3, 6, 9}, {9, 9, 2}} {
			taken := make([]int, 3)
			ends := make([]error, 3)
			tj := newTestJob(t, 3, at.servers, Arch(at.arch))
			errs := tj.end(endsAfter(steps, EndTogether, func(rank, _ int, _ Result, err error) {
				if ends[rank] = err; err == nil {
					taken[rank]++
				}
			}))
			if err := errors.Join(errors.Join(errs...), tj.wait()); err != nil {
				t.Errorf("%v, %s: %v", steps, at.arch, err)
			}
			short := min(steps[0], steps[1], steps[2])
			for rank, j := range tj.jobs {
				want, took, r := error(ErrDone), short+1, j.session.Load()
				if steps[rank] == short {
					want, took = nil, short
				}
				if !errors.Is(ends[rank], want) || taken[rank] != took || r.step != short+1 {
					t.Errorf("%v, %s: worker:%d: %d steps, then %v, at step %d; want %d, %v, %d",
						steps, at.arch, rank, taken[rank], ends[rank], r.step, took, want, short+1)
				}
				if err := allNear("w", floats64(r.training.group.Memory()[0]), floats64(tj.jobs[0].session.Load().training.group.Memory()[0])); err != nil {
					t.Errorf("%v, %s: worker:%d and worker:0: %v", steps, at.arch, rank, err)
				}
			}
		}
	}
}

// After the step of --stop-at-step, Step returns ErrDone, Main treats that as
// success, and the digest is that of this step.
func TestStopAtStepEndsWithErrDone(t *testing.T) {
	stop := flags(func(c *config.Config) { c.StopAtStep, c.Digest = 4, true })
	for _, at := range architectures {
		tj := newTestJob(t, 2, at.servers, Arch(at.arch), stop)
		errs := tj.end(func(ctx context.Context, j *Job) error {
			r, err := j.Parallelize(ctx, regression{}.build, SGD(0.1), GlobalBatch(12))
			for step := 0; err == nil; step++ {
				from, to := r.Rows()
				_, err = r.Step(ctx, regression{}.feed(step, from, to))
				if done := errors.Is(err, ErrDone); done != (step == 4) || done && r.Steps() != 4 {
					return fmt.Errorf("step %d: %v, %d steps", step, err, r.Steps())
				}
			}
			return err
		})
		if err := errors.Join(errors.Join(errs...), tj.wait()); err != nil {
			t.Errorf("%s: %v", at.arch, err)
		}
		r := tj.jobs[0].session.Load()
		r.err = nil // the digest is compared with the printed line instead
		want, err := r.variables.digest(t.Context(), r.Steps())
		if got := tj.jobs[0].out.(*bytes.Buffer).String(); err != nil || got != want+"\n" || !strings.HasPrefix(got, "digest step=4 sha256=") {
			t.Errorf("%s: printed %q, want %q, %v", at.arch, got, want, err)
		}
		if got := tj.jobs[1].out.(*bytes.Buffer).String(); got != "" {
			t.Errorf("%s: worker:1 printed %q", at.arch, got)
		}
	}
}

// If one worker passes true to Any, all workers get true and can stop
// together.
func TestAnyStopsAllWorkersTogether(t *testing.T) {
	tj := newTestJob(t, 3, 1, Arch("ps"))
	taken := make([]int, 3)
	errs := tj.end(func(ctx context.Context, j *Job) error {
		r, err := j.Parallelize(ctx, regression{}.build, SGD(0.1), GlobalBatch(12))
		if err != nil {
			return err
		}
		from, to := r.Rows()
		for step := range 20 {
			if _, err := r.Step(ctx, regression{}.feed(step, from, to)); err != nil {
				return err
			}
			taken[j.WorkerID()]++
			enough, err := j.Any(ctx, j.WorkerID() == 1 && step == 6)
			if err != nil || enough {
				return err
			}
		}
		return errors.New("nobody stopped")
	})
	if err := errors.Join(errs...); err != nil || taken[0] != 7 || taken[1] != 7 || taken[2] != 7 {
		t.Errorf("took %v steps, %v", taken, err)
	}
}
