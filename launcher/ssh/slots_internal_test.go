package ssh

import (
	"context"
	"testing"
	"testing/synctest"
	"time"
)

// Two sessions are opened at once and the server refuses both: the first, which
// waits for the second then, tries again.
func TestWhoWaitsForARefusedSessionIsWoken(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		s := newSlots(2)
		for range 2 {
			if err := s.acquire(ctx, nil, nil); err != nil {
				t.Fatal(err)
			}
		}
		if !s.refused() {
			t.Error("the other one is not waited for")
		}
		again, crowded := make(chan error, 1), 0
		go func() { again <- s.acquire(ctx, nil, func() { crowded++ }) }()
		synctest.Wait()
		if crowded != 1 {
			t.Errorf("it was told %d times that it waits", crowded)
		}
		if s.refused() {
			t.Error("nobody is there to wait for")
		}
		if err := <-again; err != nil {
			t.Errorf("still waiting: %v", err)
		}
	})
}
