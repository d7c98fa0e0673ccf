package localsum

import (
	"slices"
	"sync"

	"github.com/plx-run/plx/trainer/aggregate"
	"github.com/plx-run/plx/trainer/exchange/message"
	"github.com/plx-run/plx/trainer/layout"
	"github.com/plx-run/plx/trainer/sparse"
	"github.com/plx-run/plx/trainer/wire"
)

// Requests combines the requests for rows of the workers of a host, so that
// the host requests each row only once per step. It sends the combined request
// after every worker has sent its own request or has begun the step without
// one. Its methods are safe for concurrent use.
type Requests struct {
	d       *layout.Declaration
	first   int // rank of the first worker of the host
	holders Holders
	host    aggregate.Host

	mu        sync.Mutex
	step      uint64      // step for which requests are being collected
	finished  []bool      // indexed by worker of the host: true if the worker will send no further request for this step
	count     int         // number of workers for which finished is true
	left      []bool      // indexed by worker of the host: true if the worker has left the training
	over      bool        // true if the host's first worker, which forwards the requests, has left the training; the other workers must then ask the shard holders directly
	collected []Request   // requests for this step so far
	open      []*combined // combined requests that were sent to the shard holders and have no reply yet
}

func newRequests(d *layout.Declaration, first, workers int, holders Holders, host aggregate.Host) *Requests {
	return &Requests{d: d, first: first, holders: holders, host: host, step: d.First, finished: make([]bool, workers), left: make([]bool, workers)}
}

// Request is one worker's request for rows for a step.
type Request struct {
	Rank int            // rank of the worker that requests rows
	Rows []message.Rows // requested rows; each element covers a whole variable instead of a piece
	// Only requests of the host's first worker set Into and Done. The values
	// of Rows are copied to Into, and then Done is called. If its argument
	// direct is true, the rows have not arrived, and the worker must request
	// them from the shard holders itself.
	Into [][]byte
	Done func(direct bool)
}

// combined is the combined request of a host's workers for a step.
type combined struct {
	step     uint64
	requests []Request
}

// Add adds a worker's request for a step. A worker makes at most one request
// per step.
func (r *Requests) Add(step uint64, q Request) {
	r.mu.Lock()
	if r.over || step < r.step {
		r.mu.Unlock()
		r.refer(step, q)
		return
	}
	r.collected = append(r.collected, q)
	ready := r.finish(q.Rank)
	r.mu.Unlock()
	r.request(ready)
}

// Begin records that a worker begins a step. After that, the worker sends no
// further request for that step.
func (r *Requests) Begin(rank int, step uint64) {
	r.mu.Lock()
	var ready *combined
	if step == r.step && !r.finished[rank-r.first] {
		ready = r.finish(rank)
	}
	r.mu.Unlock()
	r.request(ready)
}

// Leave records that a worker of the host has left the training. If that was
// the host's first worker, which forwards the requests, the other workers must
// request rows from the shard holders directly from now on.
func (r *Requests) Leave(rank int) {
	if rank == r.first {
		r.end()
		return
	}
	r.mu.Lock()
	i := rank - r.first
	r.left[i] = true
	r.collected = slices.DeleteFunc(r.collected, func(q Request) bool { return q.Rank == rank })
	var ready *combined
	if !r.finished[i] {
		ready = r.finish(rank)
	}
	r.mu.Unlock()
	r.request(ready)
}

// end handles the departure of the host's first worker, which forwards the
// requests. All workers whose requests have no reply must then request their
// rows from the shard holders directly.
func (r *Requests) end() {
	r.mu.Lock()
	waiting := append(r.open, &combined{r.step, r.collected})
	r.over, r.collected, r.open = true, nil, nil
	r.mu.Unlock()
	for _, u := range waiting {
		for _, q := range u.requests {
			r.refer(u.step, q)
		}
	}
}

// refer tells the worker that sent request q to request the rows from the
// shard holders itself.
func (r *Requests) refer(step uint64, q Request) {
	if q.Done != nil {
		q.Done(true)
		return
	}
	r.host.Tell(q.Rank, message.Sends{Header: wire.Header{Kind: wire.FinalReply, Step: step, Part: message.Direct}})
}

// Skip drops the requests collected for a step, and tells their workers to
// request the rows from the shard holders directly. The host's first worker
// calls Skip before variables move to other holders, because holders refuse
// its requests during the move.
func (r *Requests) Skip(step uint64) {
	r.mu.Lock()
	var waiting []Request
	if step == r.step {
		waiting = r.collected
		r.next()
	}
	r.mu.Unlock()
	for _, q := range waiting {
		r.refer(step, q)
	}
}

// finish records that a worker sends no further request for the step. After
// the last worker of the host, finish returns the combined request; before
// that it returns nil. The caller holds r.mu.
func (r *Requests) finish(rank int) (ready *combined) {
	r.finished[rank-r.first] = true
	if r.count++; r.count < len(r.finished) {
		return nil
	}
	ready = &combined{r.step, r.collected}
	if len(r.collected) > 0 {
		r.open = append(r.open, ready)
	}
	r.next()
	return ready
}

// next starts to collect requests for the next step. The caller holds r.mu.
func (r *Requests) next() {
	r.step, r.collected, r.count = r.step+1, nil, 0
	for i, left := range r.left {
		if r.finished[i] = left; left {
			r.count++
		}
	}
}

// request sends the combined request u to the shard holders. u may be nil or
// empty; then request does nothing.
func (r *Requests) request(u *combined) {
	if u == nil || len(u.requests) == 0 {
		return
	}
	lists := make([][][]int64, len(r.d.Variables))
	for _, q := range u.requests {
		for _, r := range q.Rows {
			lists[r.Variable] = append(lists[r.Variable], r.Index)
		}
	}
	var rows []message.RowRequest
	for variable, of := range lists {
		if len(of) > 0 {
			index := sparse.Union(of...)
			rows = append(rows, message.RowRequest{Variable: variable, Index: index,
				Into: make([]byte, len(index)*r.d.Variables[variable].UnitBytes())})
		}
	}
	r.holders.Request(u.step, rows, func() { r.answer(u, rows) })
}

// answer sends every worker whose request is part of u the rows that the
// worker requested. came contains the rows that have arrived from the shard
// holders.
func (r *Requests) answer(u *combined, came []message.RowRequest) {
	r.mu.Lock()
	i := slices.Index(r.open, u)
	if i >= 0 {
		r.open = slices.Delete(r.open, i, i+1)
	}
	r.mu.Unlock()
	if i < 0 {
		return // the host's first worker has left, and the method end has already replied to the others
	}
	for _, q := range u.requests {
		var shares []message.Share
		for i, rows := range q.Rows {
			from := variable{came, rows.Variable, r.d.Variables[rows.Variable].UnitBytes()}
			if q.Done != nil {
				from.Read(rows.Index, q.Into[i]) // cannot fail: variable.Read always returns nil
			} else if len(rows.Index) > 0 {
				shares = append(shares, message.Share{Rows: rows, From: from})
			}
		}
		if q.Done != nil {
			q.Done(false)
			continue
		}
		var reply message.Reply
		r.host.Tell(q.Rank, message.Sends(reply.Frame(wire.FinalReply, u.step, shares)))
	}
}

// variable implements message.Source: it provides rows of one variable. It
// takes them from came, the rows that have arrived.
type variable struct {
	came     []message.RowRequest
	number   int
	rowBytes int
}

func (v variable) RowBytes() int { return v.rowBytes }

// Read copies the rows listed in index to into. It always returns nil.
func (v variable) Read(index []int64, into []byte) error {
	for _, w := range v.came {
		if w.Variable != v.number {
			continue
		}
		at := 0
		for n, row := range index {
			for w.Index[at] != row {
				at++
			}
			copy(into[n*v.rowBytes:(n+1)*v.rowBytes], w.Into[at*v.rowBytes:])
		}
	}
	return nil
}
