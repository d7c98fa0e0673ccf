package data

import (
	"context"
	"errors"
	"iter"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"
)

// producer makes the numbers from 0 and tells when its goroutine has ended.
type producer struct {
	n       int // how many; negative: without end
	fail    int // error instead of this one; 0: none
	started atomic.Int64
	running atomic.Int64
}

var errProducer = errors.New("producer broke")

func (p *producer) produce(context.Context) iter.Seq2[int, error] {
	return func(yield func(int, error) bool) {
		p.running.Add(1)
		defer p.running.Add(-1)
		for i := 0; p.n < 0 || i < p.n; i++ {
			p.started.Add(1)
			var err error
			if p.fail > 0 && i == p.fail {
				err = errProducer
			}
			if !yield(i, err) {
				return
			}
		}
	}
}

func TestPrefetchKeepsOrderAndErrors(t *testing.T) {
	for _, ahead := range []int{-1, 0, 1, 2, 7, 100} {
		p := &producer{n: 50}
		if got := collect(t, Prefetch(t.Context(), ahead, p.produce)); !slices.Equal(got, numbers(50)) {
			t.Errorf("ahead %d: %v", ahead, got)
		}
		p = &producer{n: 50, fail: 20}
		var last error
		seen := 0
		for _, err := range Prefetch(t.Context(), ahead, p.produce) {
			seen, last = seen+1, err
		}
		if last != errProducer || seen != 21 || p.running.Load() != 0 {
			t.Errorf("ahead %d: %v after %d items, %d producers left", ahead, last, seen, p.running.Load())
		}
	}
}

// When the caller stops, by break or panic, the producer has ended before the
// loop is left.
func TestPrefetchStopsWithItsCaller(t *testing.T) {
	p := &producer{n: -1}
	for i := range Prefetch(t.Context(), 3, p.produce) {
		if i == 10 {
			break
		}
	}
	if p.running.Load() != 0 {
		t.Error("the producer is left after a break")
	}
	func() {
		defer func() {
			if recover() != "caller" {
				t.Error("no panic came through")
			}
		}()
		for range Prefetch(t.Context(), 3, p.produce) {
			panic("caller")
		}
	}()
	if p.running.Load() != 0 {
		t.Error("the producer is left after a panic")
	}
}

func TestPrefetchEndsWithItsContext(t *testing.T) {
	ctx, cancel := context.WithCancelCause(t.Context())
	defer cancel(nil)
	cause := errors.New("enough")
	p := &producer{n: -1}
	var last error
	for i, err := range Prefetch(ctx, 3, p.produce) {
		if last = err; i == 5 {
			cancel(cause)
		}
	}
	if last != cause || p.running.Load() != 0 {
		t.Errorf("error %v, %d producers left", last, p.running.Load())
	}
	// A producer that only waits sees its context end too.
	waiting := func(ctx context.Context) iter.Seq2[int, error] {
		return func(yield func(int, error) bool) { <-ctx.Done() }
	}
	for _, err := range Prefetch(ctx, 3, waiting) {
		if err != cause {
			t.Errorf("error %v, want %v", err, cause)
		}
	}
	short, stop := context.WithTimeout(t.Context(), time.Millisecond)
	defer stop()
	last = nil
	for _, last = range Prefetch(short, 1, waiting) {
	}
	if !errors.Is(last, context.DeadlineExceeded) {
		t.Errorf("error %v, want the deadline", last)
	}
}

// No more than `ahead` items are made that nobody asked for.
func TestPrefetchIsBounded(t *testing.T) {
	for _, ahead := range []int{1, 2, 5} {
		p := &producer{n: 40}
		taken := int64(0)
		for range Prefetch(t.Context(), ahead, p.produce) {
			taken++
			if over := p.started.Load() - taken; over > int64(ahead) {
				t.Fatalf("ahead %d: %d items made besides the %d taken", ahead, over, taken)
			}
		}
	}
	// And so many are made: the producer does not wait for the caller.
	var reached sync.WaitGroup
	reached.Add(4)
	made := func(context.Context) iter.Seq2[int, error] {
		return func(yield func(int, error) bool) {
			for i := range 4 {
				reached.Done()
				if !yield(i, nil) {
					return
				}
			}
		}
	}
	for i := range Prefetch(t.Context(), 3, made) {
		if i == 0 {
			reached.Wait() // for the three after the first
		}
	}
}

// With ahead+1 buffers in turn no buffer is written while it is read; the race
// detector and the values watch.
func TestPrefetchBuffers(t *testing.T) {
	for _, ahead := range []int{1, 2, 3} {
		fill := func(context.Context) iter.Seq2[[]int, error] {
			buffers := make([][64]int, ahead+1)
			return func(yield func([]int, error) bool) {
				for i := range 500 {
					b := buffers[i%len(buffers)][:]
					for j := range b {
						b[j] = i
					}
					if !yield(b, nil) {
						return
					}
				}
			}
		}
		i := 0
		for b, err := range Prefetch(t.Context(), ahead, fill) {
			if err != nil || slices.Min(b) != i || slices.Max(b) != i {
				t.Fatalf("ahead %d, item %d: %v, %v", ahead, i, b, err)
			}
			i++
		}
	}
}
