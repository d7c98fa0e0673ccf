// Package lifetime gives goroutines that work for one thing a common end: who
// closes the thing refuses new work, cancels what runs and waits for it.
package lifetime

import (
	"context"
	"sync"
	"time"
)

// Lifetime is the time in which something works. Any goroutine may call its
// methods.
type Lifetime struct {
	ctx    context.Context // ends with the Lifetime
	cancel context.CancelFunc

	mu      sync.Mutex
	ended   bool
	running sync.WaitGroup
}

// New begins a Lifetime.
func New() *Lifetime {
	ctx, cancel := context.WithCancel(context.Background())
	return &Lifetime{ctx: ctx, cancel: cancel}
}

// Do runs work, whose context ends with the Lifetime. It reports false, and
// runs nothing, after End.
func (l *Lifetime) Do(work func(ctx context.Context)) bool {
	if !l.enter() {
		return false
	}
	defer l.running.Done()
	work(l.ctx)
	return true
}

// Go is Do on a new goroutine.
func (l *Lifetime) Go(work func(ctx context.Context)) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	if !l.ended {
		l.running.Go(func() { work(l.ctx) })
	}
	return !l.ended
}

func (l *Lifetime) enter() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.ended {
		return false
	}
	l.running.Add(1)
	return true
}

// Cancel ends the context of all work without refusing new work.
func (l *Lifetime) Cancel() { l.cancel() }

// End refuses new work and cancels the work that runs.
func (l *Lifetime) End() {
	l.mu.Lock()
	l.ended = true
	l.mu.Unlock()
	l.cancel()
}

// Wait waits for the work that runs, but not longer than most, and reports
// whether all of it has ended. Call End before.
func (l *Lifetime) Wait(most time.Duration) bool {
	left := make(chan struct{})
	go func() {
		l.running.Wait()
		close(left)
	}()
	select {
	case <-left:
		return true
	case <-time.After(most):
		return false
	}
}
