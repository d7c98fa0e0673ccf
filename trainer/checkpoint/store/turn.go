package store

import "sync"

// turn is something that happens once, well or badly.
type turn struct {
	once sync.Once
	done chan struct{} // closed when it has happened
	err  error         // valid once done is closed
}

func newTurn() turn { return turn{done: make(chan struct{})} }

// take makes it happen, unless it has happened.
func (t *turn) take(err error) {
	t.once.Do(func() {
		t.err = err
		close(t.done)
	})
}

// over reports whether it has happened.
func (t *turn) over() bool {
	select {
	case <-t.done:
		return true
	default:
		return false
	}
}
