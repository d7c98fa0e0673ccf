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

// Requests combines the row requests of the workers of a host. It requests each
// row once per step, after every worker has sent its request or has begun the
// step without one. Any goroutine may call its methods.
type Requests struct {
	d       *layout.Declaration
	first   int // rank of the first worker of the host
	holders Holders
	host    aggregate.Host

	mu        sync.Mutex
	step      uint64      // step whose requests are being collected
	finished  []bool      // by worker of the host: it requests nothing more for the step
	count     int         // number of true elements of finished
	left      []bool      // by worker of the host: it has left and requests nothing any more
	over      bool        // the first worker has left and cannot request rows for the others
	collected []Request   // requests for the step
	open      []*combined // sent to the holders and not yet answered
}

func newRequests(d *layout.Declaration, first, workers int, holders Holders, host aggregate.Host) *Requests {
	return &Requests{d: d, first: first, holders: holders, host: host, step: d.First, finished: make([]bool, workers), left: make([]bool, workers)}
}

// Request is the request of one worker of the host for rows of a step.
type Request struct {
	Rank int            // of the worker
	Rows []message.Rows // of whole variables
	// Only a request of the first worker has Into and Done. Into is the memory
	// for Rows. Done is called after the rows have arrived. If direct is set,
	// the worker must request the rows from the holders itself.
	Into [][]byte
	Done func(direct bool)
}

// combined is the combined request of a host for a step.
type combined struct {
	step     uint64
	requests []Request
}

// Add adds the request of a worker for a step. Each worker makes at most one
// request per step.
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

// Begin records that a worker begins a step, and so requests no more rows for
// it.
func (r *Requests) Begin(rank int, step uint64) {
	r.mu.Lock()
	var ready *combined
	if step == r.step && !r.finished[rank-r.first] {
		ready = r.finish(rank)
	}
	r.mu.Unlock()
	r.request(ready)
}

// Leave records that a worker of the host has left and requests nothing more.
// After the first worker has left, the others request rows from the holders
// themselves.
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

// end refers all workers with unanswered requests to the holders.
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

// refer tells a worker to request its rows from the holders itself.
func (r *Requests) refer(step uint64, q Request) {
	if q.Done != nil {
		q.Done(true)
		return
	}
	r.host.Tell(q.Rank, message.Sends{Header: wire.Header{Kind: wire.FinalReply, Step: step, Part: message.Direct}})
}

// Skip refers all workers to the holders if their requests for the step are not
// yet sent. The first worker calls Skip before variables move: holders refuse
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

// finish records that a worker requests nothing more for the step. After the last
// worker it returns the combined request. The caller holds r.mu.
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

// next begins to collect requests for the next step. The caller holds r.mu.
func (r *Requests) next() {
	r.step, r.collected, r.count = r.step+1, nil, 0
	for i, left := range r.left {
		if r.finished[i] = left; left {
			r.count++
		}
	}
}

// request sends a combined request to the holders.
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

// answer sends every worker the rows that it requested.
func (r *Requests) answer(u *combined, came []message.RowRequest) {
	r.mu.Lock()
	i := slices.Index(r.open, u)
	if i >= 0 {
		r.open = slices.Delete(r.open, i, i+1)
	}
	r.mu.Unlock()
	if i < 0 {
		return // the first worker has left, the others were told
	}
	for _, q := range u.requests {
		var shares []message.Share
		for i, rows := range q.Rows {
			from := variable{came, rows.Variable, r.d.Variables[rows.Variable].UnitBytes()}
			if q.Done != nil {
				from.Read(rows.Index, q.Into[i]) // returns no error
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

// variable provides rows of one variable from the rows that have arrived.
type variable struct {
	came     []message.RowRequest
	number   int
	rowBytes int
}

func (v variable) RowBytes() int { return v.rowBytes }

// Read copies rows of the variable. It always returns nil.
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
