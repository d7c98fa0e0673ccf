package ssh

import "testing"

// Two sessions are opened at once and the server refuses both: the first, which
// waits for the second then, tries again.
func TestWhoWaitsForARefusedSessionIsWoken(t *testing.T) {
	s := sessions{ended: make(chan struct{})}
	first, _ := s.begin(), s.begin()
	if !s.refused() {
		t.Error("the other one is not waited for")
	}
	select {
	case <-first:
		t.Error("the other one has not ended yet")
	default:
	}
	if s.refused() {
		t.Error("nobody is there to wait for")
	}
	select {
	case <-first:
	default:
		t.Error("still waiting")
	}
}

// A session ends while the server refuses another one: that tries again.
func TestNoEndIsMissed(t *testing.T) {
	s := sessions{ended: make(chan struct{})}
	s.begin()
	s.begin()
	freed := s.begin()
	s.end()
	if !s.refused() {
		t.Error("the other one is not waited for")
	}
	select {
	case <-freed:
	default:
		t.Error("still waiting")
	}
}
