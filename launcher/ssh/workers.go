package ssh

import (
	"sync"
	"time"
)

// group counts goroutines. Unlike a sync.WaitGroup it may start some during a wait, and
// the wait has a bound.
type group struct {
	mu    sync.Mutex
	count int
	idle  chan struct{} // closed when count becomes 0; nil: nobody waits
}

func (g *group) start(f func()) {
	g.mu.Lock()
	g.count++
	g.mu.Unlock()
	go func() {
		defer g.finish()
		f()
	}()
}

func (g *group) finish() {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.count--
	if g.count == 0 && g.idle != nil {
		close(g.idle)
		g.idle = nil
	}
}

// wait returns when no goroutine is left, or after the bound.
func (g *group) wait(bound time.Duration) {
	g.mu.Lock()
	if g.count == 0 {
		g.mu.Unlock()
		return
	}
	if g.idle == nil {
		g.idle = make(chan struct{})
	}
	idle := g.idle
	g.mu.Unlock()
	select {
	case <-idle:
	case <-time.After(bound):
	}
}
