package ssh

import (
	"context"
	"sync"
)

// slots limits the sessions open at once. The limit shrinks when the server
// refuses a session while others are open.
type slots struct {
	mu      sync.Mutex
	limit   int
	active  int
	changed chan struct{} // closed and replaced at each release
	once    bool          // a session was opened; never reset
}

func newSlots(limit int) *slots {
	return &slots{limit: limit, changed: make(chan struct{})}
}

// acquire waits for a slot until ctx or done ends.
func (s *slots) acquire(ctx context.Context, done <-chan struct{}) error {
	for {
		s.mu.Lock()
		if s.active < s.limit {
			s.active++
			s.mu.Unlock()
			return nil
		}
		changed := s.changed
		s.mu.Unlock()
		select {
		case <-changed:
		case <-done:
			return errClientDone
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
}

// opened notes that the server gave a session.
func (s *slots) opened() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.once = true
}

// used reports whether the server has ever given a session.
func (s *slots) used() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.once
}

func (s *slots) release() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.active--
	close(s.changed)
	s.changed = make(chan struct{})
}

// refused gives the slot back after the server refused the session, and reports
// whether others are open, so that waiting for one of them makes sense. The
// limit becomes their number.
func (s *slots) refused() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.active--
	if s.active > 0 {
		s.limit = min(s.limit, s.active)
		return true
	}
	close(s.changed) // who waits for this one, which was refused too, tries again
	s.changed = make(chan struct{})
	return false
}
