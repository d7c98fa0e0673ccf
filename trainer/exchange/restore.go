package exchange

import (
	"context"
	"fmt"
	"time"

	"github.com/plx-run/plx/trainer/aggregate"
	"github.com/plx-run/plx/trainer/exchange/transition"
)

// startRestore begins to restore all that the task owns; workers are let in
// when it is there. It needs s.mu, and an shards.
func (s *server) startRestore() error {
	e := s.shards
	s.restoring = e.Restore()
	if len(s.restoring) > 0 && s.checkpoints == nil {
		return s.own(fmt.Errorf("is to restore its variables from checkpoint %q and was not configured to", e.Declaration().Checkpoint))
	}
	if !s.closing {
		s.writers.Go(s.restoreAll)
	}
	return nil
}

// restoreAll restores every piece, and ends the training where that fails.
func (s *server) restoreAll() {
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	done := make(chan error, 1)
	go func() { done <- transition.RestoreAll(ctx, s.shards.Declaration(), s.restoring, s.checkpoints) }()
	select {
	case err := <-done:
		if err != nil {
			s.end(s.own(err))
			return
		}
	case <-s.ended:
		for _, r := range s.restoring {
			r.Close() // what is missing matters no more
		}
		cancel()
		select {
		case <-done:
		case <-time.After(farewell): // it was told, and what it puts is refused
		}
		return
	}
	s.mu.Lock()
	s.filled = true
	s.mu.Unlock()
	s.open()
}

// unrestored returns a piece that is not there yet, nil: all are.
func unrestored(all []*aggregate.Restoring) *aggregate.Restoring {
	for _, r := range all {
		if !r.Closed() {
			return r
		}
	}
	return nil
}
