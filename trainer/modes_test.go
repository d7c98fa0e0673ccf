package trainer

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"

	"gorgonia.org/tensor"
)

// turns makes groups of workers take their steps one group after the other, so
// that asynchronous training is deterministic.
type turns struct {
	mu     sync.Mutex
	next   *sync.Cond
	groups int
	size   int // of a group
	turn   int
	done   int // number of workers of the current group that have taken their step
}

func newTurns(groups, size int) *turns {
	t := &turns{groups: groups, size: size}
	t.next = sync.NewCond(&t.mu)
	return t
}

// take calls do when it is the turn of the worker's group. After an error the
// turn ends too.
func (t *turns) take(rank int, do func() error) error {
	t.mu.Lock()
	for t.turn%t.groups != rank/t.size {
		t.next.Wait()
	}
	t.mu.Unlock()
	err := do()
	t.mu.Lock()
	if t.done++; t.done == t.size {
		t.turn, t.done = t.turn+1, 0
		t.next.Broadcast()
	}
	for turn := t.turn; t.done > 0 && t.turn == turn; { // wait for the other workers of the group
		t.next.Wait()
	}
	t.mu.Unlock()
	return err
}

// In asynchronous modes, a worker or group computes a gradient from the values
// that it received last. The servers apply the gradient to their current
// values. The results must equal those of a plain loop that does so.
func TestAsynchronousModesEqualReferenceLoop(t *testing.T) {
	const steps, rate, batch = 6, 0.2, 12
	for _, c := range []struct {
		sync             string
		workers, servers int
		groups           int // number of groups that take their steps in turn
		clip             float64
	}{
		{"async", 1, 1, 1, 0}, {"async", 3, 2, 3, 0}, {"async", 4, 1, 4, 1.5},
		{"ssp:1", 2, 1, 2, 0}, {"ssp:5", 3, 2, 3, 1.5},
		{"group:3", 3, 1, 3, 0}, {"group:2", 4, 2, 2, 0}, {"group:2", 4, 1, 2, 1.5}, {"group:1", 3, 1, 1, 1.5},
	} {
		t.Run(fmt.Sprintf("%s of %d", c.sync, c.workers), func(t *testing.T) {
			tj := newTestJob(t, c.workers, c.servers, Sync(c.sync))
			order := newTurns(c.groups, c.workers/c.groups)
			losses := make([][]float64, c.workers)
			last := make([]map[string]*tensor.Dense, c.workers)
			errs := tj.all(func(j *Job) error {
				r, err := j.Parallelize(t.Context(), regression{}.build, SGD(rate), GlobalBatch(batch), ClipNorm(c.clip), MeasureNorm())
				for step := 0; step < steps; step++ {
					err = errors.Join(err, order.take(j.WorkerID(), func() error {
						if err != nil {
							return nil // report only the first error, because it causes the others
						}
						from, to := r.Rows()
						result, err := r.Step(t.Context(), regression{}.feed(step, from, to))
						losses[j.WorkerID()] = append(losses[j.WorkerID()], result.Loss)
						return err
					}))
				}
				if err == nil {
					last[j.WorkerID()], err = r.Values(t.Context())
				}
				return err
			})
			if err := errors.Join(errors.Join(errs...), tj.wait()); err != nil {
				t.Fatal(err)
			}
			if err := staleTwin(losses, last, c.groups, rate, c.clip, batch); err != nil {
				t.Error(err)
			}
		})
	}
}

// staleTwin computes in a plain loop what groups of workers compute that take
// their steps in turn. It compares the losses, by rank and step, and the
// values that each worker received last.
func staleTwin(losses [][]float64, last []map[string]*tensor.Dense, groups int, rate, clip float64, batch int) error {
	var server regression
	var errs []error
	local, each, size := make([]regression, groups), batch/groups, len(losses)/groups
	for step := range losses[0] {
		for group := range local {
			done := local[group].look(server.rows(step, group*each, (group+1)*each))
			server.apply(done, rate, clip)
			local[group] = server
			for rank := group * size; rank < (group+1)*size; rank++ {
				if got := losses[rank][step]; !near(got, done.loss) {
					errs = append(errs, fmt.Errorf("worker:%d, step %d: loss %v, the twin has %v", rank, step, got, done.loss))
				}
			}
		}
	}
	for rank, values := range last {
		if err := local[rank/size].has(values); err != nil {
			errs = append(errs, fmt.Errorf("worker:%d: %w", rank, err))
		}
	}
	return errors.Join(errs...)
}

// With a mode other than sync, digests of two runs differ, so the chief must
// warn of --digest.
func TestDigestWithoutSyncIsReported(t *testing.T) {
	for sync, want := range map[string]int{"async": 1, "sync": 0} {
		tj := newTestJob(t, 2, 1, Sync(sync), Config{Digest: true})
		errs := tj.all(func(j *Job) error {
			_, err := j.Parallelize(t.Context(), regression{}.build, SGD(0.1), GlobalBatch(4))
			return err
		})
		if err := errors.Join(errors.Join(errs...), tj.wait()); err != nil {
			t.Fatal(err)
		}
		for rank, log := range tj.logs {
			if got := strings.Count(log.String(), "warn: --digest with --sync async"); got != want && rank == 0 || got > 0 && rank > 0 {
				t.Errorf("%s, worker:%d: reported %d times: %s", sync, rank, got, log)
			}
		}
	}
}

// Some settings of other modes leave no freedom, such as group:1. Their
// results must have the same bits as those of sync.
func TestModesWithoutFreedomEqualSync(t *testing.T) {
	for name, x := range everything() {
		t.Run(name, func(t *testing.T) {
			x.options = []Option{GlobalBatch(24)} // backup does not clip
			want := x.alone(t, VirtualWorkers(6))
			for _, c := range []struct {
				sync             string
				workers, servers int
			}{
				{"sync", 3, 2}, {"group:1", 3, 2}, {"group:1", 6, 1}, {"backup:0", 3, 2}, {"backup:0", 4, 1},
				{"async", 1, 2}, {"ssp:0", 1, 1}, {"group:1", 1, 2}, {"backup:0", 1, 1},
			} {
				done, err := x.together(newTestJob(t, c.workers, c.servers, Sync(c.sync), VirtualWorkers(6), scattered))
				if err == nil {
					err = done.same(want)
				}
				if err != nil {
					t.Errorf("%+v: %v", c, err)
				}
			}
		})
	}
}

// In every mode the loss must fall, even if no test controls the order of the
// workers.
func TestEveryModeLearns(t *testing.T) {
	if testing.Short() {
		t.Skip("takes seconds")
	}
	testLearning(t, func(mode, model int) bool { return mode%3 == model }) // the long test covers all combinations of mode and model
}

func testLearning(t *testing.T, chosen func(mode, model int) bool) {
	all := everything()
	for i, mode := range []string{"sync", "async", "ssp:0", "ssp:3", "group:2", "group:4", "backup:0", "backup:1", "backup:2"} {
		for model, name := range each(all) {
			if !chosen(i, model) {
				continue
			}
			x := all[name]
			x.options, x.opt = []Option{GlobalBatch(24)}, Adam(0.01)
			x.steps = 40
			tj := newTestJob(t, 4, 2, Sync(mode), scattered)
			losses := make([][]float64, len(tj.jobs))
			err := errors.Join(tj.all(func(j *Job) error {
				done, err := x.run(j)
				losses[j.WorkerID()] = done.losses
				return err
			})...)
			if err := errors.Join(err, tj.wait()); err != nil {
				t.Errorf("%s, %s: %v", mode, name, err)
			}
			first := 0.0 // a worker that came too late for the first steps has no loss for them
			for _, of := range losses {
				if len(of) > 0 {
					first = max(first, mean(of[:min(3, len(of))]))
				}
			}
			for rank, of := range losses {
				if last := mean(of[max(0, len(of)-3):]); len(of) > 6 && !(last < 0.9*first) {
					t.Errorf("%s, %s: worker:%d: the loss went from %v to %v", mode, name, rank, first, last)
				}
			}
		}
	}
}

func mean(x []float64) float64 {
	sum := 0.0
	for _, v := range x {
		sum += v
	}
	return sum / float64(len(x))
}

// With backup:B, the gradients of a late worker must be dropped and counted.
// The mean is taken over the gradients that arrived in time.
func TestLateWorkerIsLeftOut(t *testing.T) {
	const steps, rate, batch = 12, 0.2, 9
	tj := newTestJob(t, 3, 1, Sync("backup:1"))
	var ahead, caught sync.WaitGroup
	ahead.Add(2)
	caught.Add(1)
	var twin regression
	errs := tj.all(func(j *Job) error {
		r, err := j.Parallelize(t.Context(), regression{}.build, SGD(rate), GlobalBatch(batch))
		if err != nil {
			return err
		}
		from, to := r.Rows()
		if j.WorkerID() == 2 {
			ahead.Wait()
			return stepLate(t.Context(), r, steps, caught.Done)
		}
		for calls := 0; r.Steps() < steps; calls++ {
			result, err := r.Step(t.Context(), regression{}.feed(r.Steps(), from, to))
			if err != nil {
				return ended(err)
			}
			if calls < 5 && j.WorkerID() == 0 {
				done := twin.look(twin.rows(calls, 0, 6))
				twin.apply(done, rate, 0)
				if result.Late || !near(result.Loss, done.loss) {
					return fmt.Errorf("step %d: %+v, the twin without worker:2 has loss %v", calls, result, done.loss)
				}
			}
			if calls == 4 {
				ahead.Done()
				caught.Wait() // otherwise the late worker might arrive after the end of training
			}
		}
		return nil
	})
	if err := errors.Join(errors.Join(errs...), tj.wait()); err != nil {
		t.Error(err)
	}
}

// stepLate starts training after the others have taken five steps. Its
// gradients for the second step are then too late and must be dropped.
func stepLate(ctx context.Context, r *Session, steps int, caught func()) error {
	from, to := r.Rows()
	made := 0
	feed := func(step int) (Feed, error) {
		if made++; made == 3 && step != 5 {
			return nil, fmt.Errorf("after the step that came too late it feeds step %d", step)
		}
		return regression{}.feed(step, from, to), nil
	}
	for result, err := range r.Train(ctx, steps, feed) {
		if made == 2 {
			caught()
			if late, dropped := r.Late(); err == nil && (!result.Late || result.Step != 0 || r.Steps() != 5 || late != 1 || dropped != to-from) {
				err = fmt.Errorf("%+v, now at step %d, %d steps and %d rows in vain; want late, 5, 1 and %d", result, r.Steps(), late, dropped, to-from)
			}
		}
		if err != nil {
			return ended(err)
		}
	}
	return nil
}

// ended returns nil for ErrDone. A late worker gets it if too few other
// workers are left for a further step.
func ended(err error) error {
	if err == nil || errors.Is(err, ErrDone) {
		return nil
	}
	return err
}
