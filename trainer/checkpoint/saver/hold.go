package saver

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/plx-run/plx/trainer/cluster"
)

// Request is somebody's wish for a checkpoint.
type Request struct {
	Number  int            // a later request has a higher one
	Hold    bool           // the chief takes no step after the checkpoint, until Resume
	Workers int            // with Hold: so many resume from it
	Leaving []cluster.Task // with Hold: tasks that are gone then
	// Tell gets the step and, with Hold, for how long the chief was held until
	// the checkpoint was written; or why there is none. Any goroutine calls it.
	Tell func(step int, held time.Duration, err error)
}

// rest is the chief's pause after a checkpoint.
type rest struct {
	number  int // of the request
	leaving []cluster.Task
	step    int  // after which the checkpoint is
	carried bool // workers add state that they carried into the next step
	since   time.Time
	over    chan struct{} // closed when the chief may go on
}

// carry notes whether workers add state that they carried.
func (r *rest) carry(state bool) { r.carried = state }

// hold begins a rest if one of the requests wants it. It needs s.mu.
func (s *Saver) hold(asked []Request, step int) *rest {
	i := slices.IndexFunc(asked, func(r Request) bool { return r.Hold })
	if i < 0 {
		return nil
	}
	s.resting = &rest{number: asked[i].Number, leaving: asked[i].Leaving, step: step, since: time.Now(), over: make(chan struct{})}
	return s.resting
}

// tell answers requests. Without a checkpoint nobody is held.
func (s *Saver) tell(asked []Request, resting *rest, step int, err error) {
	held := time.Duration(0)
	if resting != nil {
		held = time.Since(resting.since)
	}
	if err != nil && resting != nil {
		s.Resume(resting.number)
	}
	for _, r := range asked {
		r.Tell(step, held, err)
	}
}

// Resume ends a rest that a request up to this one asked for, also one that has
// not begun. A later request may have come before this call. Any goroutine may
// call it.
func (s *Saver) Resume(number int) {
	if s == nil {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	for i, r := range s.asked {
		r.Hold = r.Hold && r.Number > number
		s.asked[i] = r
	}
	if s.resting != nil && s.resting.number <= number {
		close(s.resting.over)
		s.resting = nil
	}
}

// rest holds the chief, and with it, in step, all workers. State that workers
// carry is saved with the outcome of the next step. The chief takes that step
// before it rests, and the workers recompute it after the restart.
func (s *Saver) rest(ctx context.Context, step int) error {
	s.mu.Lock()
	resting := s.resting
	s.mu.Unlock()
	if resting == nil || resting.carried && resting.step == step {
		return nil
	}
	defer s.config.Waiting(func() string { return fmt.Sprintf("the job to go on with other hosts after step %d", resting.step) })()
	select {
	case <-resting.over:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}
