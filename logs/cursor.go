package logs

import (
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"
)

// Cursor remembers how far each source of each host was received. Its zero
// value has received nothing. Any goroutine may use it.
type Cursor struct {
	mu   sync.Mutex
	next map[string]map[Source]int64 // by host: the first byte not received
}

// Take returns the part of c that was not received before, which may be empty,
// and counts it as received. The first chunk of a source may start anywhere,
// a later one that leaves bytes out is an error, and c is not counted.
func (k *Cursor) Take(host string, c Chunk) (Chunk, error) {
	k.mu.Lock()
	defer k.mu.Unlock()
	next, known := k.next[host][c.Source]
	if !known {
		next = c.Offset
	}
	if c.Offset > next {
		return Chunk{}, fmt.Errorf("host %s: log of %s: %d bytes are missing at %d",
			host, c.Source, c.Offset-next, next)
	}
	if old := next - c.Offset; old > 0 {
		c.Data = c.Data[min(old, int64(len(c.Data))):]
		c.Offset, c.Restart = next, false
	}
	k.set(host, c.Source, c.Offset+int64(len(c.Data)))
	return c, nil
}

func (k *Cursor) set(host string, src Source, next int64) {
	if k.next == nil {
		k.next = map[string]map[Source]int64{}
	}
	if k.next[host] == nil {
		k.next[host] = map[Source]int64{}
	}
	k.next[host][src] = next
}

// Request returns req as it is to be sent to host now: unchanged when nothing
// was received from it, else continued at the first byte not received.
func (k *Cursor) Request(host string, req Request) Request {
	k.mu.Lock()
	defer k.mu.Unlock()
	if len(k.next[host]) == 0 {
		return req
	}
	req.From = make([]Position, 0, len(k.next[host]))
	for src, next := range k.next[host] {
		req.From = append(req.From, Position{Source: src, Offset: next})
	}
	slices.SortFunc(req.From, func(a, b Position) int {
		return strings.Compare(a.file(), b.file())
	})
	req.TailLines, req.Since = -1, time.Time{}
	return req
}
