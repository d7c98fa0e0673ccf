package data

import (
	"context"
	"iter"
	"sync"
)

// Prefetch returns the sequence that produce returns, computed in the
// background up to `ahead` items (at least one) before they are needed. The
// items keep their order. The sequence ends after the first error.
//
// When ctx ends, the sequence yields its error and ends. When the caller stops
// ranging or ctx ends, Prefetch cancels the context of produce and waits for
// the producer, so that no goroutine is left. A producer must therefore end
// soon after its context. Each range over the sequence calls produce again.
//
// The caller owns an item until it asks for the next one. So a producer that
// fills ahead+1 buffers in turn never writes to a buffer that is still read.
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
				select {
				case items <- item[T]{x, err}:
				case <-inner.Done():
					return
				}
				if err != nil {
					return
				}
			}
		})
		deliver(ctx, items, yield)
	}
}

// item is a value of the producer, or its error.
type item[T any] struct {
	value T
	err   error
}

// deliver passes items on until there are no more, the caller stops, or ctx
// ends.
func deliver[T any](ctx context.Context, items <-chan item[T], yield func(T, error) bool) {
	for {
		var x item[T]
		more := true
		if ctx.Err() == nil { // an ended context takes precedence over items that are ready
			select {
			case x, more = <-items:
			case <-ctx.Done():
			}
		}
		// A producer whose context ended closes the channel without an item.
		if err := ctx.Err(); err != nil {
			x, more = item[T]{err: context.Cause(ctx)}, true
		}
		if !more || !yield(x.value, x.err) || x.err != nil {
			return
		}
	}
}
