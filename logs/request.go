package logs

import (
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"
)

// Request names the bytes of a host's spools that a receiver wants. It travels
// as JSON. The zero value requests nothing: TailLines -1 requests everything.
type Request struct {
	Tasks     []string   `json:"tasks,omitempty"`  // names such as worker:3; empty means all tasks
	From      []Position `json:"from,omitempty"`   // where to continue an earlier request; empty for a first one
	TailLines int        `json:"tail_lines"`       // number of last lines of each source; -1 means all
	Since     time.Time  `json:"since,omitzero"`   // skip lines finished before this time; zero skips none
	Follow    bool       `json:"follow,omitempty"` // continue while the job runs
}

// Position is the offset at which a receiver continues a source. If a Request has
// any, a source without a Position starts at its first byte, and TailLines and
// Since have no effect.
type Position struct {
	Source
	Offset int64 `json:"offset"`
}

// check returns an error for a request that no receiver sends.
func (r Request) check() error {
	for _, task := range r.Tasks {
		if err := (Source{Task: task}).check(); err != nil {
			return err
		}
	}
	for _, p := range r.From {
		if err := p.Source.check(); err != nil {
			return err
		}
		if p.Offset < 0 {
			return fmt.Errorf("%s: negative offset %d", p.Source, p.Offset)
		}
	}
	return nil
}

// whole returns r for spools that the receiver wants from their first byte.
func (r Request) whole() Request {
	r.TailLines, r.Since = -1, time.Time{}
	return r
}

// wants reports whether r requests src.
func (r Request) wants(src Source) bool {
	return len(r.Tasks) == 0 || slices.Contains(r.Tasks, src.Task)
}

// from returns the offset at which r continues src, if r continues anything.
func (r Request) from(src Source) (int64, bool) {
	for _, p := range r.From {
		if p.Source == src {
			return p.Offset, true
		}
	}
	return 0, len(r.From) > 0
}

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
	return req.whole()
}
