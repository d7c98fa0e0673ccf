package depot

import (
	"fmt"
	"sync/atomic"
	"time"

	"github.com/plx-run/plx/trainer/wire"
)

// watch cuts a connection on which nothing moves although the other end is
// alive: its disk hangs, or it has forgotten. It is used by one goroutine.
type watch struct {
	timer *time.Timer
	most  time.Duration
	last  time.Duration // that it counts to
	cut   atomic.Bool
}

func newWatch(conn *wire.Conn, most time.Duration) *watch {
	w := &watch{most: most, last: most}
	w.timer = time.AfterFunc(most, func() {
		w.cut.Store(true)
		conn.Close()
	})
	return w
}

// extend begins to count anew: so long from now on, or what it was made with.
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

// explain gives the reason of an error where the watch is it.
func (w *watch) explain(err error) error {
	if err != nil && w.cut.Load() {
		return fmt.Errorf("it is there, but nothing moved for %v", w.last)
	}
	return err
}
