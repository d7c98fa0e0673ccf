package data

import (
	"context"
	"iter"
	"sync"
)

// Prefetch is the sequence that produce returns, made in the background up to
// `ahead` items before they are asked for (at least one), in order, errors
// included. It ends after the first error.
//
// When ctx ends, the sequence gives its error and ends. When the caller stops
// ranging, or ctx ends, the context that produce was given ends, and the
// sequence waits for the producer before it returns: a producer must end soon
// after its context. No goroutine is left. Each range over the sequence calls
// produce again.
//
// An item belongs to the caller until it asks for the next one. So a producer
// that fills ahead+1 buffers in turn never touches one that is still read.
func Prefetch[T any](ctx context.Context, ahead int, produce func(context.Context) iter.Seq2[T, error]) iter.Seq2[T, error] {
	return func(yield func(T, error) bool) {
		inner, cancel := context.WithCancel(ctx)
		items := make(chan item[T], max(1, ahead)-1)
		var running sync.WaitGroup
		defer running.Wait() // after cancel
		defer cancel()
		running.Go(func() {
			defer close(items)
			for x, err := range produce(inner) {
				if !send(inner, items, item[T]{x, err}) || err != nil {
					return
				}
			}
		})
		deliver(ctx, items, yield)
	}
}

// item is what a producer made or why it could not.
type item[T any] struct {
	value T
	err   error
}

func send[T any](ctx context.Context, items chan<- item[T], x item[T]) bool {
	select {
	case items <- x:
		return true
	case <-ctx.Done():
		return false
	}
}

// deliver passes items on until there are no more, the caller stops or ctx ends.
func deliver[T any](ctx context.Context, items <-chan item[T], yield func(T, error) bool) {
	for {
		var x item[T]
		more := true
		if ctx.Err() == nil { // an ended context goes before items that are ready
			select {
			case x, more = <-items:
			case <-ctx.Done():
			}
		}
		// A producer that saw the context end closes without an item.
		if err := ctx.Err(); err != nil {
			x, more = item[T]{err: context.Cause(ctx)}, true
		}
		if !more || !yield(x.value, x.err) || x.err != nil {
			return
		}
	}
}
