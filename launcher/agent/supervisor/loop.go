//go:build linux

package supervisor

import (
	"sync"
	"time"
)

// loop runs functions one after the other, in the goroutine of supervisor.run.
// The supervisor's state needs no locks, because only these functions change
// it.
type loop struct {
	calls chan func()    // functions to run, in order
	quit  chan struct{}  // closed when supervisor.run has returned; later functions are dropped
	over  bool           // true if supervisor.run must return after the current function
	work  sync.WaitGroup // counts the running background goroutines
}

// do waits until the loop begins to run f. If the loop has ended, do returns
// without running f. A function that runs on the loop must not call do: the
// call would deadlock.
func (l *loop) do(f func()) {
	select {
	case l.calls <- f:
	case <-l.quit:
	}
}

// background runs f in a new goroutine. The method wait waits for all such
// goroutines.
func (l *loop) background(f func()) { l.work.Go(f) }

// wait waits up to d for the background goroutines. Goroutines that are still
// blocked after d end with the process.
func (l *loop) wait(d time.Duration) {
	idle := make(chan struct{})
	go func() {
		defer close(idle)
		l.work.Wait()
	}()
	within(d, idle)
}

// within waits up to d until done is closed. It reports whether done was
// closed.
func within(d time.Duration, done <-chan struct{}) bool {
	select {
	case <-done:
		return true
	case <-time.After(d):
	}
	select { // if both channels were ready, the first select may have chosen the timer
	case <-done:
		return true
	default:
		return false
	}
}

// deadline is a point in time that can be moved only to an earlier time. The
// zero value means no deadline.
type deadline struct {
	at   time.Time // the deadline; the zero time means that none is set
	over bool      // true once passed has returned true
}

func (d *deadline) set(after time.Duration) {
	if at := time.Now().Add(after); d.at.IsZero() || at.Before(d.at) {
		d.at = at
	}
}

// passed returns true exactly once: at the first call after the deadline.
func (d *deadline) passed() bool {
	if d.over || d.at.IsZero() || time.Now().Before(d.at) {
		return false
	}
	d.over = true
	return true
}
