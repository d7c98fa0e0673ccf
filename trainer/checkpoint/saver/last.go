package saver

import (
	"context"
	"fmt"
	"time"

	"github.com/plx-run/plx/trainer/cluster"
)

// Conclude makes the last checkpoint of a training that has ended well, after so
// many steps, and waits until all of it is written. The store has reported one
// that fails. If workers are not in step, the checkpoint has the last step of
// each.
func (s *Saver) Conclude(ctx context.Context, step int) error {
	if s == nil {
		return nil
	}
	store := s.config.Store
	store.Wait(ctx) // a failed save is reported by itself
	if !s.config.InStep {
		if err := s.outlast(ctx, step); err != nil {
			return err
		}
		store.Wait(ctx) // a failed save is reported by itself
	}
	if s.at != step || !s.config.InStep {
		if err := s.save(ctx, step); err != nil {
			return err
		}
	}
	s.finish(result{step, store.Wait(ctx)})
	s.telling.Wait()
	return nil
}

// outlast waits until all other workers have left, in modes in which none waits
// for another. Meanwhile it saves what is due and what somebody asks for, as
// between two steps.
func (s *Saver) outlast(ctx context.Context, step int) error {
	s.end()
	defer s.config.Waiting(func() string { return "the other workers' last steps" })()
	for {
		alone, err := s.config.Exchange.Conclude(ctx, time.Second)
		if alone || err != nil {
			return err
		}
		s.due = s.due || s.overdue()
		if err := s.After(ctx, step); err != nil {
			return err
		}
	}
}

// end notes that the chief takes no further step, and refuses the requests that
// need one.
func (s *Saver) end() {
	s.mu.Lock()
	s.done = true
	asked := s.asked
	s.asked = nil
	s.mu.Unlock()
	for _, r := range asked {
		s.Ask(r)
	}
}

// refuses returns why nothing can be saved for a request. Another number of
// workers would begin with the chief's step, so nobody would take the steps that
// others have still to take. It needs s.mu.
func (s *Saver) refuses(r Request) error {
	if !s.done || !r.Hold || r.Workers == s.config.Workers {
		return nil
	}
	return fmt.Errorf("%s has made its last step, and others have not: only as many workers as now, %d, can go on, not %d",
		cluster.Chief, s.config.Workers, r.Workers)
}

// meanwhile is the time between two checkpoints after the chief's last step if
// they are counted in steps, of which the chief takes none any more.
const meanwhile = time.Minute

// overdue reports whether it is time for the next of these.
func (s *Saver) overdue() bool { return s.config.Steps > 0 && time.Since(s.last) >= meanwhile }

// finish answers who has asked and who will: nothing is left to be saved.
func (s *Saver) finish(last result) {
	s.mu.Lock()
	asked := s.asked
	s.asked, s.over = nil, &last
	s.mu.Unlock()
	s.tell(asked, nil, last.step, last.err)
}
