package depot

import (
	"context"
	"sync"
)

// mailbox delivers messages in order, on a goroutine of its own, so that
// whoever has something to say waits for nobody.
type mailbox struct {
	mu     sync.Mutex
	queue  []message
	posted chan struct{} // a token
}

func newMailbox() *mailbox { return &mailbox{posted: make(chan struct{}, 1)} }

func (b *mailbox) post(m message) {
	b.mu.Lock()
	b.queue = append(b.queue, m)
	b.mu.Unlock()
	select {
	case b.posted <- struct{}{}:
	default: // it will be looked at anyway
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
