// Package lifetime ends a group of goroutines that work for one object. When
// the object is closed, its Lifetime rejects new work, cancels the running
// work and waits for it.
package lifetime

import (
	"context"
	"sync"
	"time"
)

// Lifetime is the time from the creation of an object to its close, during
// which the object may run goroutines. Any goroutine may call its methods.
type Lifetime struct {
	ctx    context.Context // context of all work, which End and Cancel cancel
	cancel context.CancelFunc

	mu      sync.Mutex
	ended   bool
	running sync.WaitGroup
}

// New returns a Lifetime that accepts work.
func New() *Lifetime {
	ctx, cancel := context.WithCancel(context.Background())
	return &Lifetime{ctx: ctx, cancel: cancel}
}

// Do calls work with a context that End cancels, and returns true when work
// returns. After End it returns false without calling work.
func (l *Lifetime) Do(work func(ctx context.Context)) bool {
	if !l.enter() {
		return false
	}
	defer l.running.Done()
	work(l.ctx)
	return true
}

// Go is like Do but calls work on a new goroutine and returns at once.
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

// Cancel cancels the context of all work; new work is still accepted.
func (l *Lifetime) Cancel() { l.cancel() }

// End makes Do and Go reject new work, and cancels the context of the running
// work.
func (l *Lifetime) End() {
	l.mu.Lock()
	l.ended = true
	l.mu.Unlock()
	l.cancel()
}

// Wait waits until all running work has returned. It returns false if that
// takes longer than the duration most. End must be called first.
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
