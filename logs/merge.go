package logs

import (
	"container/heap"
	"io"
)

// Merge takes all hosts' chunks to their ends, with a function for each that is
// like [Reader.Next], and emits them in order of time, as far as the hosts'
// clocks agree; chunks of one host keep their order, and the next is asked for
// once the one before was emitted. It waits for the slowest host, so it is for
// requests without Follow.
//
// A host whose chunks end with an error does not stop the others. Merge returns
// each host's error, nil for the good ones; that of emit, which ends it, is the
// error of the host whose chunk it was.
func Merge(hosts []func() (Chunk, error), emit func(host int, c Chunk) error) []error {
	errs := make([]error, len(hosts))
	var heads headHeap
	for i, next := range hosts {
		h := head{host: i, next: next}
		if h.advance(errs) {
			heads = append(heads, h)
		}
	}
	heap.Init(&heads)
	for len(heads) > 0 {
		if err := emit(heads[0].host, heads[0].chunk); err != nil {
			errs[heads[0].host] = err
			return errs
		}
		// Not before emit is done: reading on takes its bytes away.
		if heads[0].advance(errs) {
			heap.Fix(&heads, 0)
		} else {
			heap.Pop(&heads)
		}
	}
	return errs
}

// head is the next chunk of a host.
type head struct {
	host  int
	next  func() (Chunk, error)
	chunk Chunk
}

// advance asks for the next chunk and reports whether there is one.
func (h *head) advance(errs []error) bool {
	c, err := h.next()
	if err != nil && err != io.EOF { // others may wrap it
		errs[h.host] = err
	}
	h.chunk = c
	return err == nil
}

// headHeap has the oldest chunk at its root, the first host's of several.
type headHeap []head

func (h headHeap) Len() int      { return len(h) }
func (h headHeap) Swap(i, j int) { h[i], h[j] = h[j], h[i] }
func (h *headHeap) Push(x any)   { *h = append(*h, x.(head)) }

func (h headHeap) Less(i, j int) bool {
	if !h[i].chunk.Time.Equal(h[j].chunk.Time) {
		return h[i].chunk.Time.Before(h[j].chunk.Time)
	}
	return h[i].host < h[j].host
}

func (h *headHeap) Pop() any {
	last := (*h)[len(*h)-1]
	*h = (*h)[:len(*h)-1]
	return last
}
