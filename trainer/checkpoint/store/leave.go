package store

import "context"

// Wait waits until no save is under way and returns the last one's error. For
// a task other than the chief it is the end: Wait returns once no task needs
// this one any more, to save or to read what it holds, and later saves do
// without it. Every task calls Wait before it ends in good order.
func (s *Store) Wait(ctx context.Context) error {
	if s.chief != nil {
		return s.chief.saves.wait(ctx)
	}
	s.leave.Do(func() {
		close(s.leaving)
		s.up.post(message{Kind: leave})
	})
	select {
	case <-s.gone.done:
		return s.gone.err
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// dismiss is the chief's first part of Close. It lets all other tasks go and
// waits in bounded time until they have hung up. No save is completed any more.
func (s *Store) dismiss() {
	if s.chief != nil {
		s.chief.dismissing.Do(s.chief.dismiss)
	}
}
