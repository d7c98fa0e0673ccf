//go:build linux

package supervisor

import (
	"sync"
	"time"
)

// loop runs functions one after the other, in the goroutine of supervisor.run.
type loop struct {
	calls chan func()    // functions to run, in order
	quit  chan struct{}  // closed when run has returned: no more functions are run
	over  bool           // run returns after the present function, which has set it
	work  sync.WaitGroup // background goroutines
}

// do makes the loop run f. It returns when f has begun, or after the loop has
// ended. The loop itself must not call it.
func (l *loop) do(f func()) {
	select {
	case l.calls <- f:
	case <-l.quit:
	}
}

// background runs f in a goroutine of its own.
func (l *loop) background(f func()) { l.work.Go(f) }

// wait waits for the background goroutines, at most d. What is stuck ends with the
// process.
func (l *loop) wait(d time.Duration) {
	idle := make(chan struct{})
	go func() {
		defer close(idle)
		l.work.Wait()
	}()
	within(d, idle)
}

// within waits until done is closed, at most d. It reports whether it was.
func within(d time.Duration, done <-chan struct{}) bool {
	select {
	case <-done:
		return true
	case <-time.After(d):
	}
	select { // both may have been ready
	case <-done:
		return true
	default:
		return false
	}
}

// deadline is the earliest of the times that it was set to. Its zero value is none.
type deadline struct {
	at   time.Time // zero: none is set
	over bool      // passed has returned true; it does so once
}

func (d *deadline) set(after time.Duration) {
	if at := time.Now().Add(after); d.at.IsZero() || at.Before(d.at) {
		d.at = at
	}
}

// passed reports once that the deadline has passed.
func (d *deadline) passed() bool {
	if d.over || d.at.IsZero() || time.Now().Before(d.at) {
		return false
	}
	d.over = true
	return true
}
