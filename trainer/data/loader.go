package data

import (
	"context"
	"fmt"
	"io"
	"sync"
	"sync/atomic"
	"time"
)

// ahead is the number of batches that a Loader reads before they are asked for.
const ahead = 2

// quick is the time of a batch that is not worth a goroutine and its wake-ups.
const quick = 50 * time.Microsecond

// Loader reads batches of a dataset in the background: when a batch is asked for,
// the batches after it are begun. It holds at most three batches. Batches that are
// read in no time are read when they are asked for, by who asks.
type Loader[T any] struct {
	ctx     context.Context
	from    Dataset[T]
	batches int // there are so many
	indices func(batch int) []int
	cores   int
	quick   time.Duration // a batch that takes less is read when it is asked for; see the constant

	mu      sync.Mutex
	took    time.Duration       // by the batch that was read last; 0: none was
	pending map[int]*pending[T] // by batch
	last    *pending[T]         // the one begun last; the next begins when it has ended
}

// pending is a batch that is read.
type pending[T any] struct {
	ctx    context.Context
	cancel context.CancelFunc
	done   chan struct{} // closed when it has ended
	batch  []T
	err    error
}

// NewLoader reads with at most so many goroutines at a time. There are so many
// batches, and indices returns the samples of one. Everything ends with ctx.
func NewLoader[T any](ctx context.Context, d Dataset[T], cores, batches int, indices func(batch int) []int) *Loader[T] {
	return &Loader[T]{ctx: ctx, from: d, batches: batches, indices: indices, cores: max(1, cores), quick: quick, pending: map[int]*pending[T]{}}
}

// Batch returns batch n, and io.EOF after the last one. The caller owns the slice.
// The same batch can be asked for again, and any other one.
func (l *Loader[T]) Batch(n int) ([]T, error) {
	if n < 0 {
		return nil, fmt.Errorf("batch %d: want 0 or more", n)
	}
	if n >= l.batches {
		return nil, io.EOF
	}
	p := l.begin(n)
	if p == nil {
		return l.read(l.ctx, n, 1)
	}
	select {
	case <-p.done:
		return p.batch, p.err
	case <-l.ctx.Done():
		return nil, context.Cause(l.ctx)
	}
}

// begin begins to read batch n and those after it, and returns batch n; nil if nobody
// has begun it and it takes no time. Batches that are far from n are given up.
func (l *Loader[T]) begin(n int) *pending[T] {
	l.mu.Lock()
	defer l.mu.Unlock()
	for batch, p := range l.pending {
		if batch < n || batch > n+ahead {
			p.cancel()
			delete(l.pending, batch)
		}
	}
	inline := l.took > 0 && l.took < l.quick
	for batch := n; batch <= min(n+ahead, l.batches-1); batch++ {
		if l.pending[batch] == nil && !inline {
			l.pending[batch] = l.start(batch)
		}
	}
	p := l.pending[n]
	delete(l.pending, n) // the slice is the caller's
	return p
}

// start reads a batch after the one that was started before.
func (l *Loader[T]) start(batch int) *pending[T] {
	before := l.last
	p := &pending[T]{done: make(chan struct{})}
	p.ctx, p.cancel = context.WithCancel(l.ctx)
	l.last = p
	go func() {
		defer close(p.done)
		defer p.cancel()
		if before != nil {
			<-before.done
		}
		if p.err = context.Cause(p.ctx); p.err == nil {
			p.batch, p.err = l.read(p.ctx, batch, l.cores)
		}
	}()
	return p
}

// read reads a batch on so many cores, and notes how long that took. Of several errors it
// returns that of the first sample in the batch.
func (l *Loader[T]) read(ctx context.Context, n, cores int) ([]T, error) {
	begun := time.Now()
	defer func() {
		l.mu.Lock()
		defer l.mu.Unlock()
		l.took = max(1, time.Since(begun))
	}()
	var (
		indices = l.indices(n)
		batch   = make([]T, len(indices))
		errs    = make([]error, len(indices))
		next    atomic.Int64
		failed  atomic.Bool
		running sync.WaitGroup
	)
	work := func() {
		for !failed.Load() && ctx.Err() == nil {
			i := int(next.Add(1)) - 1
			if i >= len(indices) {
				return
			}
			if batch[i], errs[i] = l.from.At(indices[i]); errs[i] != nil {
				failed.Store(true)
			}
		}
	}
	for range min(cores, len(indices)) - 1 {
		running.Go(work)
	}
	work()
	running.Wait()
	if ctx.Err() != nil {
		return nil, context.Cause(ctx)
	}
	for _, err := range errs {
		if err != nil {
			return nil, err
		}
	}
	return batch, nil
}
