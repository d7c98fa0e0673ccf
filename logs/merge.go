package logs

import (
	"container/heap"
	"errors"
	"io"
)

// Merge reads all hosts' chunks to their ends and emits them in order of time,
// as far as the hosts' clocks agree; chunks of one host keep their order. It
// waits for the slowest host, so it is for requests without Follow.
//
// A host whose stream ends before its end record does not stop the others: cut
// says which, and with what error, after all they sent was emitted. The error
// is that of emit, which ends the merge.
func Merge(hosts map[string]*Reader, emit func(host string, c Chunk) error) (cut map[string]error, err error) {
	cut = map[string]error{}
	var heads headHeap
	for host, r := range hosts {
		h := head{host: host, r: r}
		if h.advance(cut) {
			heads = append(heads, h)
		}
	}
	heap.Init(&heads)
	for len(heads) > 0 {
		if err := emit(heads[0].host, heads[0].chunk); err != nil {
			return cut, err
		}
		// Not before emit is done: reading on takes its bytes away.
		if heads[0].advance(cut) {
			heap.Fix(&heads, 0)
		} else {
			heap.Pop(&heads)
		}
	}
	return cut, nil
}

// head is the next chunk of a host.
type head struct {
	host  string
	r     *Reader
	chunk Chunk
}

// advance reads the next chunk and reports whether there is one.
func (h *head) advance(cut map[string]error) bool {
	c, err := h.r.Next()
	if err != nil && !errors.Is(err, io.EOF) {
		cut[h.host] = err
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
