package store

import (
	"context"
	"sync"
)

// mailbox delivers messages in order. post never waits; one goroutine calls
// run.
type mailbox struct {
	mu     sync.Mutex
	queue  []message
	posted chan struct{} // a token: the queue has grown
}

func newMailbox() *mailbox { return &mailbox{posted: make(chan struct{}, 1)} }

func (b *mailbox) post(m message) {
	b.mu.Lock()
	b.queue = append(b.queue, m)
	b.mu.Unlock()
	select {
	case b.posted <- struct{}{}:
	default: // a token is there already
	}
}

// run delivers until ctx ends, or with the error of a delivery.
func (b *mailbox) run(ctx context.Context, deliver func(message) error) error {
	for {
		b.mu.Lock()
		all := b.queue
		b.queue = nil
		b.mu.Unlock()
		for _, m := range all {
			if err := deliver(m); err != nil {
				return err
			}
		}
		select {
		case <-b.posted:
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
}
