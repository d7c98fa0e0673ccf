package lifetime

import (
	"context"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"
)

// After End no work can begin; End may be called again.
func TestEndRefusesWork(t *testing.T) {
	l := New()
	l.End()
	l.End()
	var ran atomic.Int32
	work := func(context.Context) { ran.Add(1) }
	if l.Do(work) || l.Go(work) {
		t.Error("work was accepted after the end")
	}
	if !l.Wait(time.Minute) || ran.Load() != 0 {
		t.Errorf("%d pieces of work ran after the end", ran.Load())
	}
}

// Do returns after its work; Go returns before.
func TestDoWaitsForItsWork(t *testing.T) {
	l := New()
	release, ended := make(chan struct{}), make(chan struct{})
	if !l.Go(func(context.Context) { <-release; close(ended) }) {
		t.Error("Go refused the work")
	}
	done := false
	if !l.Do(func(context.Context) { close(release); <-ended; done = true }) || !done {
		t.Error("Do refused its work, or returned before it ended")
	}
}

// Cancel cancels the context of running and of later work, but still accepts
// work.
func TestCancelStillAcceptsWork(t *testing.T) {
	l := New()
	cancelled := make(chan struct{})
	l.Go(func(ctx context.Context) {
		<-ctx.Done()
		close(cancelled)
	})
	l.Cancel()
	<-cancelled
	var err error
	if !l.Do(func(ctx context.Context) { err = ctx.Err() }) || err != context.Canceled {
		t.Errorf("work after Cancel has a context with %v, want %v", err, context.Canceled)
	}
}

// Wait waits for work of Do and Go whose contexts End has cancelled.
func TestWaitWaitsForRunningWork(t *testing.T) {
	for name, begin := range map[string]func(*Lifetime, func(context.Context)){
		"Do": func(l *Lifetime, work func(context.Context)) { go l.Do(work) },
		"Go": func(l *Lifetime, work func(context.Context)) { l.Go(work) },
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				l := New()
				const tidying = 3 * time.Second
				var tidied atomic.Bool
				begin(l, func(ctx context.Context) {
					<-ctx.Done()
					<-time.After(tidying)
					tidied.Store(true)
				})
				synctest.Wait() // the work has begun
				l.End()
				began := time.Now()
				if l.Wait(time.Second) || time.Since(began) != time.Second {
					t.Errorf("Wait reported the end after %v, while work runs", time.Since(began))
				}
				if !l.Wait(time.Hour) || !tidied.Load() || time.Since(began) != tidying {
					t.Errorf("Wait returned after %v, want %v", time.Since(began), tidying)
				}
			})
		})
	}
}

// Work that begins while End runs is either rejected or awaited by Wait.
func TestWorkThatBeginsDuringEndIsRefusedOrAwaited(t *testing.T) {
	for range 100 {
		l := New()
		var accepted, ended atomic.Int32
		work := func(ctx context.Context) {
			<-ctx.Done()
			ended.Add(1)
		}
		var callers sync.WaitGroup
		for i := range 8 {
			begin := []func(func(context.Context)) bool{l.Do, l.Go}[i%2]
			callers.Go(func() {
				if begin(work) {
					accepted.Add(1)
				}
			})
		}
		l.End()
		if !l.Wait(time.Minute) {
			t.Fatal("work runs on")
		}
		ran := ended.Load()
		callers.Wait()
		if accepted.Load() != ran {
			t.Fatalf("%d pieces of work were accepted, and %d had ended when Wait returned", accepted.Load(), ran)
		}
	}
}
