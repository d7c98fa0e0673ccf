package data

import (
	"context"
	"fmt"
	"io"
	"sync"
	"sync/atomic"
	"time"
)

// ahead is the number of batches that a Loader reads in advance, after the
// batch that was requested.
const ahead = 2

// quick is a time limit. If reading a batch takes less time, starting
// goroutines for it would cost more than it gains.
const quick = 50 * time.Microsecond

// Loader reads batches of a dataset in the background. A request for a batch
// also starts reading the two batches after it. A Loader holds at most three
// batches. If reading a batch takes less than 50 µs, Batch reads it in the
// calling goroutine instead.
type Loader[T any] struct {
	ctx     context.Context
	from    Dataset[T]
	batches int // number of batches; Batch returns io.EOF after the last one
	indices func(batch int) []int
	cores   int
	quick   time.Duration // time limit, normally the constant quick; tests set other values

	mu      sync.Mutex
	took    time.Duration       // time that reading the last batch took; 0 before the first batch was read
	pending map[int]*pending[T] // batches being read in the background, by batch number, until Batch returns them
	last    *pending[T]         // the batch whose reading was started last, after which the next one is read; nil before the first
}

// pending is a batch that the Loader reads in the background.
type pending[T any] struct {
	ctx    context.Context
	cancel context.CancelFunc
	done   chan struct{} // closed when reading has ended; then batch and err are set
	batch  []T
	err    error
}

// NewLoader returns a Loader for the given number of batches. indices returns
// the samples of a batch. The Loader reads samples with at most cores
// goroutines at a time. Canceling ctx stops all reading.
func NewLoader[T any](ctx context.Context, d Dataset[T], cores, batches int, indices func(batch int) []int) *Loader[T] {
	return &Loader[T]{ctx: ctx, from: d, batches: batches, indices: indices, cores: max(1, cores), quick: quick, pending: map[int]*pending[T]{}}
}

// Batch returns batch n, or io.EOF if n is past the last batch. The caller
// owns the returned slice. Batches may be requested in any order and more than
// once.
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

// begin starts reading batch n and the batches after it, and returns batch n.
// If batches take less time than l.quick, begin starts none; it then returns
// nil unless batch n was started earlier, and the caller must read batch n
// itself. begin cancels all started batches before n and after n+ahead.
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
	delete(l.pending, n) // the batch must not be returned twice: Batch's caller owns it and may change it
	return p
}

// start reads a batch in the background. Reading begins when the batch that
// was started before has been read.
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

// read reads batch n with at most cores goroutines. It stores in l.took how
// long reading took. If several samples fail, it returns the error of the
// first of them in the batch.
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
