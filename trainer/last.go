package trainer

import (
	"context"
	"fmt"
	"log/slog"
	"time"

	"github.com/plx-run/plx/trainer/cluster"
)

// result is what became of a checkpoint.
type result struct {
	step int
	err  error
}

// lastCheckpoint is every worker's part in the one at the end. Workers that
// carry state leave together: it comes from each, and the chief may ask for it
// after another has done its last step.
func (r *Replica) lastCheckpoint(ctx context.Context) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.err != nil || r.job.depot == nil {
		return nil
	}
	r.began()
	if err := r.makeLast(ctx); err != nil || len(r.carried) == 0 || !r.declared.Sync.Together() {
		return err
	}
	return r.job.Barrier(ctx)
}

func (r *Replica) makeLast(ctx context.Context) error {
	r.saveCarried(int(r.client.Step()), func(c carried) []byte { return c.memory })
	return r.saver.conclude(ctx)
}

// conclude makes the last checkpoint, of a training that has ended well, and
// waits until all is written. One that fails was said to. Where workers are not in
// step it has the last step of each.
func (s *saver) conclude(ctx context.Context) error {
	if s == nil {
		return nil
	}
	d := s.r.job.depot
	d.Wait(ctx)
	loose := !s.r.declared.Sync.Together()
	if loose {
		if err := s.outlast(ctx); err != nil {
			return err
		}
		d.Wait(ctx)
	}
	if s.at != s.r.step || loose {
		if err := s.save(ctx); err != nil {
			return err
		}
	}
	s.finish(result{s.r.step, d.Wait(ctx)})
	s.telling.Wait()
	if sum := d.Summary(); sum.Saved+sum.Failed > 0 {
		s.r.job.Logf(slog.LevelInfo, "%s of %s made, %d failed; steps held for %v at most, %v in all",
			count(sum.Saved, "checkpoint"), size(int(sum.Bytes)), sum.Failed, brief(sum.LongestHeld), brief(sum.Held))
	}
	return nil
}

// outlast waits until all other workers have left, where none waits for another.
// Meanwhile what is due and asked for is saved, as between two steps.
func (s *saver) outlast(ctx context.Context) error {
	s.r.job.mesh.Close() // before others wait there for this worker
	s.outlasts()
	defer s.r.job.waiting(func() string { return "the other workers' last steps" })()
	for {
		alone, err := s.r.client.Conclude(ctx, time.Second)
		if alone || err != nil {
			return err
		}
		s.due = s.due || s.overdue()
		if err := s.after(ctx); err != nil {
			return err
		}
	}
}

// outlasts refuses what can no longer be done for those who have asked.
func (s *saver) outlasts() {
	s.mu.Lock()
	s.done = true
	asked := s.asked
	s.asked = nil
	s.mu.Unlock()
	for _, r := range asked {
		s.ask(r)
	}
}

// isDone reports whether the chief takes no further step, while others may.
func (s *saver) isDone() bool {
	if s == nil {
		return false
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.done
}

// refuses says why nothing can be saved for a request: another number of workers
// would begin with the chief's step, so that what others have still to make would
// never be made. It needs s.mu.
func (s *saver) refuses(r request) error {
	if !s.done || !r.hold || r.workers == s.r.job.NumWorkers() {
		return nil
	}
	return fmt.Errorf("%s has made its last step, and others have not: only as many workers as now, %d, can go on, not %d",
		cluster.Chief, s.r.job.NumWorkers(), r.workers)
}

// meanwhile is the time between two checkpoints behind the chief's last step where
// they are counted in steps, of which the chief makes none any more.
const meanwhile = time.Minute

// overdue reports whether it is time for another one of these.
func (s *saver) overdue() bool {
	return s.r.job.config.ckptSteps > 0 && time.Since(s.last) >= meanwhile
}

// finish answers whoever has asked and whoever will: nothing is left to be saved.
func (s *saver) finish(last result) {
	s.mu.Lock()
	asked := s.asked
	s.asked, s.result = nil, &last
	s.mu.Unlock()
	s.tell(asked, nil, last.step, last.err)
}

// brief is a time to ten microseconds.
func brief(t time.Duration) time.Duration { return t.Round(10 * time.Microsecond) }
