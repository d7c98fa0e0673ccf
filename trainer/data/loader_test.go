package data

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"
)

// inBatches returns a function that returns the sample indices of a batch of
// the given size.
func inBatches(size int) func(int) []int {
	return func(batch int) (all []int) {
		for i := range size {
			all = append(all, batch*size+i)
		}
		return all
	}
}

func TestLoaderReadsAnyBatch(t *testing.T) {
	l := NewLoader(t.Context(), count(100), 3, 12, inBatches(8))
	for _, n := range []int{0, 1, 2, 3, 7, 6, 6, 0, 11, 10, 11} {
		got, err := l.Batch(n)
		if want := inBatches(8)(n); err != nil || !slices.Equal(got, want) {
			t.Errorf("batch %d: %v, %v", n, got, err)
		}
		clear(got) // it is the caller's
	}
	if _, err := l.Batch(12); err != io.EOF {
		t.Errorf("after the last batch: %v", err)
	}
	if _, err := l.Batch(-1); err == nil || err == io.EOF {
		t.Errorf("batch -1: %v", err)
	}
}

// watched is a dataset that counts how many samples are read at the same time.
// Each read waits for a ticket.
type watched struct {
	tickets    chan struct{} // nil means that reads do not wait
	mu         sync.Mutex
	read       []int
	now, peak  int
	failed     map[int]error
	afterwards atomic.Int64 // number of samples read so far
}

func (w *watched) Len() int { return 1000 }

func (w *watched) At(i int) (int, error) {
	w.afterwards.Add(1)
	w.mu.Lock()
	w.now++
	w.peak = max(w.peak, w.now)
	w.mu.Unlock()
	if w.tickets != nil {
		<-w.tickets
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	w.now--
	w.read = append(w.read, i)
	return i, w.failed[i]
}

// until waits for a condition, at most a minute.
func until(t *testing.T, what string, holds func() bool) {
	t.Helper()
	for end := time.Now().Add(time.Minute); !holds(); time.Sleep(time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("not within a minute: %s", what)
		}
	}
}

// A Loader must read exactly two batches in advance, and at most as many
// samples at a time as it has cores.
func TestLoaderReadsAhead(t *testing.T) {
	w := &watched{}
	l := NewLoader(t.Context(), w, 4, 50, inBatches(10))
	l.quick = 0
	if _, err := l.Batch(3); err != nil {
		t.Fatal(err)
	}
	until(t, "batches 4 and 5 are read", func() bool { w.mu.Lock(); defer w.mu.Unlock(); return len(w.read) == 30 })
	for _, n := range []int{4, 5} {
		if _, err := l.Batch(n); err != nil {
			t.Fatal(err)
		}
	}
	until(t, "batches 6 and 7 are read", func() bool { w.mu.Lock(); defer w.mu.Unlock(); return len(w.read) == 50 })
	w.mu.Lock()
	defer w.mu.Unlock()
	slices.Sort(w.read)
	for i, x := range w.read {
		if x != 30+i {
			t.Fatalf("%v were read", w.read)
		}
	}
	if w.peak > 4 {
		t.Errorf("%d samples were read at a time on 4 cores", w.peak)
	}
}

// If samples are quick to read, a Loader must not read batches in advance. If
// samples become slow, it must do so again.
func TestLoaderReadsQuickBatchesInTheCallersGoroutine(t *testing.T) {
	w := &watched{}
	l := NewLoader(t.Context(), w, 2, 50, inBatches(10))
	l.quick = time.Hour
	asked := func(n int) []int {
		t.Helper()
		got, err := l.Batch(n)
		if err != nil || !slices.Equal(got, inBatches(10)(n)) {
			t.Fatalf("batch %d: %v, %v", n, got, err)
		}
		w.mu.Lock()
		defer w.mu.Unlock()
		return slices.Clone(w.read)
	}
	for n := range 3 { // the first batch and the two after it were read in the background
		asked(n)
	}
	if read := asked(3); len(read) != 40 {
		t.Errorf("%v were read, want those of batches 0 to 3", read)
	}
	if read := asked(7); !slices.Equal(read[40:], inBatches(10)(7)) { // in order: nobody helps
		t.Errorf("for batch 7 %v were read", read[40:])
	}
	l.quick = 0
	asked(8)
	until(t, "batches 9 and 10 are read", func() bool { w.mu.Lock(); defer w.mu.Unlock(); return len(w.read) == 80 })
}

// The Loader must read with all its cores at the same time.
func TestLoaderUsesAllCores(t *testing.T) {
	w := &watched{tickets: make(chan struct{})}
	l := NewLoader(t.Context(), w, 3, 1, inBatches(10))
	done := make(chan error)
	go func() { _, err := l.Batch(0); done <- err }()
	until(t, "three samples are read at a time", func() bool { w.mu.Lock(); defer w.mu.Unlock(); return w.now == 3 })
	close(w.tickets)
	if err := <-done; err != nil || w.peak != 3 {
		t.Errorf("%d at a time, %v", w.peak, err)
	}
}

// The error of a batch must be that of its first failed sample. Other batches
// must not be affected.
func TestLoaderReturnsTheFirstError(t *testing.T) {
	for range 50 {
		w := &watched{failed: map[int]error{}}
		for i := 15; i < 20; i++ {
			w.failed[i] = fmt.Errorf("sample %d", i)
		}
		l := NewLoader(t.Context(), w, 8, 9, inBatches(10))
		for n := range 3 {
			batch, err := l.Batch(n)
			if n != 1 && (err != nil || len(batch) != 10) || n == 1 && err != w.failed[15] {
				t.Fatalf("batch %d: %v, %v", n, batch, err)
			}
		}
	}
}

// After the context is canceled, the Loader must stop reading, and Batch must
// return the cause.
func TestLoaderStopsWhenItsContextIsCanceled(t *testing.T) {
	ctx, cancel := context.WithCancelCause(t.Context())
	w := &watched{tickets: make(chan struct{}, 1000)}
	l := NewLoader(ctx, w, 2, 50, inBatches(10))
	done := make(chan error)
	go func() { _, err := l.Batch(0); done <- err }()
	until(t, "two samples are read", func() bool { w.mu.Lock(); defer w.mu.Unlock(); return w.now == 2 })
	why := errors.New("enough")
	cancel(why)
	if err := <-done; err != why {
		t.Errorf("got %v", err)
	}
	for range 1000 {
		w.tickets <- struct{}{}
	}
	<-l.last.done
	if n := w.afterwards.Load(); n > 2 {
		t.Errorf("%d samples were asked for, two of them before the end", n)
	}
	if _, err := l.Batch(7); err != why {
		t.Errorf("got %v", err)
	}
}
