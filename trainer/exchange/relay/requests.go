package relay

import (
	"slices"
	"sync"

	"github.com/plx-run/plx/trainer/aggregate"
	"github.com/plx-run/plx/trainer/exchange/message"
	"github.com/plx-run/plx/trainer/layout"
	"github.com/plx-run/plx/trainer/sparse"
	"github.com/plx-run/plx/trainer/wire"
)

// Requests collects the rows that the workers of a host want for a step. It
// requests each row once, when every worker has said what it wants or has begun
// the step without. Any goroutine may call its methods.
type Requests struct {
	d       *layout.Declaration
	first   int // rank of the first worker of the host
	holders Holders
	host    aggregate.Host

	mu        sync.Mutex
	step      uint64    // that is being collected
	said      []bool    // by worker of the host: it adds nothing more for the step
	count     int       // of said
	left      []bool    // by worker of the host: it wants nothing any more
	over      bool      // the first worker has left: nobody can request for the others
	collected []Request // for the step
	open      []*union  // requested from the holders, and not answered
}

func newRequests(d *layout.Declaration, first, workers int, holders Holders, host aggregate.Host) *Requests {
	return &Requests{d: d, first: first, holders: holders, host: host, step: d.First, said: make([]bool, workers), left: make([]bool, workers)}
}

// Request is what one worker of the host wants for a step.
type Request struct {
	Rank int
	Rows []message.Rows // of whole variables
	// Into and Done are of the first worker itself: where Rows belong, and what
	// is called once they are there. If direct, the worker is to request them
	// from the holders itself.
	Into [][]byte
	Done func(direct bool)
}

// union is what a whole host wants for a step.
type union struct {
	step     uint64
	requests []Request
}

// Add takes a worker's request for a step. Each worker makes one per step at most.
func (r *Requests) Add(step uint64, q Request) {
	r.mu.Lock()
	if r.over || step < r.step {
		r.mu.Unlock()
		r.refer(step, q)
		return
	}
	r.collected = append(r.collected, q)
	ready := r.say(q.Rank)
	r.mu.Unlock()
	r.request(ready)
}

// Begin notes that a worker begins a step: it wants nothing more for it.
func (r *Requests) Begin(rank int, step uint64) {
	r.mu.Lock()
	var ready *union
	if step == r.step && !r.said[rank-r.first] {
		ready = r.say(rank)
	}
	r.mu.Unlock()
	r.request(ready)
}

// Leave notes that a worker of the host wants nothing any more. When it is the
// first one, the others are to request rows themselves.
func (r *Requests) Leave(rank int) {
	if rank == r.first {
		r.end()
		return
	}
	r.mu.Lock()
	i := rank - r.first
	r.left[i] = true
	r.collected = slices.DeleteFunc(r.collected, func(q Request) bool { return q.Rank == rank })
	var ready *union
	if !r.said[i] {
		ready = r.say(rank)
	}
	r.mu.Unlock()
	r.request(ready)
}

// end refers all workers that wait to the holders.
func (r *Requests) end() {
	r.mu.Lock()
	waiting := append(r.open, &union{r.step, r.collected})
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
	r.host.Tell(q.Rank, message.Sends{Header: wire.Header{Kind: wire.Final, Step: step, Part: message.Direct}})
}

// Skip refers all workers to the holders for a step whose rows are not requested
// yet: the first worker is about to let variables move before it, and the
// holders would not hear it meanwhile.
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

// say counts a worker that adds nothing more for the step, and returns what is
// wanted when it was the last one. It needs r.mu.
func (r *Requests) say(rank int) (ready *union) {
	r.said[rank-r.first] = true
	if r.count++; r.count < len(r.said) {
		return nil
	}
	ready = &union{r.step, r.collected}
	if len(r.collected) > 0 {
		r.open = append(r.open, ready)
	}
	r.next()
	return ready
}

// next begins to collect for the next step. It needs r.mu.
func (r *Requests) next() {
	r.step, r.collected, r.count = r.step+1, nil, 0
	for i, left := range r.left {
		if r.said[i] = left; left {
			r.count++
		}
	}
}

// request requests a union from the holders.
func (r *Requests) request(u *union) {
	if u == nil || len(u.requests) == 0 {
		return
	}
	lists := make([][][]int64, len(r.d.Variables))
	for _, q := range u.requests {
		for _, rows := range q.Rows {
			lists[rows.Variable] = append(lists[rows.Variable], rows.Index)
		}
	}
	var wanted []message.Wanted
	for variable, of := range lists {
		if len(of) > 0 {
			index := sparse.Union(of...)
			wanted = append(wanted, message.Wanted{Variable: variable, Index: index,
				Into: make([]byte, len(index)*r.d.Variables[variable].UnitBytes())})
		}
	}
	r.holders.Request(u.step, wanted, func() { r.answer(u, wanted) })
}

// answer gives every worker its share of what came.
func (r *Requests) answer(u *union, came []message.Wanted) {
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
		r.host.Tell(q.Rank, message.Sends(reply.Frame(wire.Final, u.step, shares)))
	}
}

// variable is the rows of one variable among those that came.
type variable struct {
	came     []message.Wanted
	number   int
	rowBytes int
}

func (v variable) RowBytes() int { return v.rowBytes }

// Read copies rows that came. It returns no error.
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
