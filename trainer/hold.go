package trainer

import (
	"context"
	"fmt"
	"time"

	"github.com/plx-run/plx/trainer/cluster"
)

// request is somebody's wish for a checkpoint. With hold the chief takes no
// further step once it is made, and the tasks of leaving are not there when
// training goes on from it.
type request struct {
	tell    func(step int, held time.Duration, err error)
	number  int // of later ones it is higher
	hold    bool
	workers int // with hold: so many there will be
	leaving []cluster.Task
}

// rest is the chief's pause behind a checkpoint.
type rest struct {
	number  int // of the request
	leaving []cluster.Task
	step    int // behind which it was made
	since   time.Time
	over    chan struct{} // closed: it goes on
}

// hold begins a rest where one of those who asked wants it. It needs s.mu.
func (s *saver) hold(asked []request) *rest {
	for _, r := range asked {
		if r.hold {
			s.resting = &rest{number: r.number, leaving: r.leaving, step: s.r.step, since: time.Now(), over: make(chan struct{})}
			return s.resting
		}
	}
	return nil
}

// tell says what became of a checkpoint. Where there is none nobody is held.
func (s *saver) tell(asked []request, resting *rest, step int, err error) {
	held := time.Duration(0)
	if resting != nil {
		held = time.Since(resting.since)
	}
	if err != nil && resting != nil {
		s.resume(resting.number)
	}
	for _, r := range asked {
		r.tell(step, held, err)
	}
}

// resume ends a rest that a request up to this one asked for, even one that has
// not begun. A later request may have come before this word.
func (s *saver) resume(number int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for i := range s.asked {
		s.asked[i].hold = s.asked[i].hold && s.asked[i].number > number
	}
	if s.resting != nil && s.resting.number <= number {
		close(s.resting.over)
		s.resting = nil
	}
}

// rest holds the chief, and with it, in step, all workers. What workers carry
// is saved once they hear of it with the outcome of the next step, so that this
// one is still made, and made again when training goes on.
func (s *saver) rest(ctx context.Context) error {
	s.mu.Lock()
	resting := s.resting
	s.mu.Unlock()
	if resting == nil || len(s.r.carriers()) > 0 && resting.step == s.r.step {
		return nil
	}
	defer s.r.job.waiting(func() string { return fmt.Sprintf("the job to go on with other hosts behind step %d", resting.step) })()
	select {
	case <-resting.over:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// bears says why the job cannot go on with so many workers.
func (j *Job) bears(workers int) error {
	if err := j.config.suits(workers, len(j.servers())); err != nil {
		return err
	}
	leaves, err := j.config.leaves(workers, j.contract.FirstWorldSize)
	if err == nil && leaves != j.leaves {
		err = fmt.Errorf("%s, and it trains with %s: launch it with --virtual-workers %d", count(workers, "worker"), count(j.leaves, "virtual worker"), leaves)
	}
	return err
}
