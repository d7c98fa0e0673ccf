package transfer

import (
	"fmt"
	"sync/atomic"
	"time"

	"github.com/plx-run/plx/trainer/peers"
)

// watch closes a session on which nothing moves although the other task lives:
// its disk hangs, or it has forgotten. One goroutine uses it.
type watch struct {
	timer *time.Timer
	most  time.Duration // without an extension
	last  time.Duration // of the current count
	cut   atomic.Bool   // it has closed the session
}

func newWatch(s *peers.Session, most time.Duration) *watch {
	w := &watch{most: most, last: most}
	w.timer = time.AfterFunc(most, func() {
		w.cut.Store(true)
		s.Close() // its end is what is announced
	})
	return w
}

// extend counts anew: most from now on, or with zero what the watch was made
// with.
func (w *watch) extend(most time.Duration) {
	if most == 0 {
		most = w.most
	}
	if w.timer.Stop() {
		w.last = most
		w.timer.Reset(most)
	}
}

func (w *watch) stop() { w.timer.Stop() }

// explain replaces an error whose cause is the watch.
func (w *watch) explain(err error) error {
	if err != nil && w.cut.Load() {
		return fmt.Errorf("it is there, but nothing moved for %v", w.last)
	}
	return err
}
