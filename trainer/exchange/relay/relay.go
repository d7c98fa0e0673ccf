// Package relay implements local aggregation: the first worker of a host deals
// with the parameter servers on behalf of all workers of the host. It adds
// their gradients of variables on servers and sends one contribution. It
// requests the rows of sparse variables for all of them, each row once. It
// passes new values on to them.
//
// To the other workers of its host, a Relay is a shard holder of whole
// variables. To the servers, it is a worker that has all virtual workers of the
// host. A Relay opens no connection itself: its Holders reach the servers, and
// an aggregate.Host reaches the workers.
package relay

import (
	"sync"
	"sync/atomic"

	"github.com/plx-run/plx/trainer/aggregate"
	"github.com/plx-run/plx/trainer/cluster"
	"github.com/plx-run/plx/trainer/exchange/message"
	"github.com/plx-run/plx/trainer/layout"
)

// Holders sends frames from the first worker of a host to the shard holders.
// Its methods never block.
type Holders interface {
	// Begin sends the payload of a step frame, and then the buckets that Push
	// held.
	Begin(payload []byte)
	// Push sends a bucket of Outbox for a part, or holds it until Begin.
	Push(bucket, part int)
	// Request requests rows for a step, and calls done after all of them have
	// arrived.
	Request(step uint64, rows []message.RowRequest, done func())
}

// Relay aggregates the contributions of the workers of a host. Any goroutine
// may call its methods.
type Relay struct {
	Rows   *Requests         // row requests of the host's workers
	Outbox *aggregate.Outbox // sums of the host, for the shard holders

	d       *layout.Declaration
	rank    int // of the first worker of the host
	holders Holders
	shards  *aggregate.Shards   // sums of the host; set by Attach
	workers *layout.Roster      // workers of the host
	host    *layout.Contributor // this host, as a contributor to the servers
	slots   []int               // by variable, then the loss: index of its shard; -1: not aggregated here

	mu      sync.Mutex
	present []int          // by part of the host: virtual workers with data in the step that workers are beginning
	begun   int            // number of workers that have begun the step
	opened  atomic.Uint64  // number of steps that all workers of the host have begun
	left    []atomic.Int32 // by variable: pieces whose new values are still to come
}

// New returns the Relay of a worker. It returns nil if the worker is not the
// first of several workers of a host.
func New(d *layout.Declaration, rank int, holders Holders) *Relay {
	ranks := d.HostOf(rank)
	if ranks.Lo != rank || ranks.Len() == 1 {
		return nil
	}
	host := layout.NewRoster(cluster.Task{Role: cluster.PS}, d).Contributor(rank)
	tree := layout.NewTree(d.VirtualWorkers)
	r := &Relay{d: d, rank: rank, holders: holders, host: host, workers: layout.NewHostRoster(tree, d, ranks, host.Parts),
		present: make([]int, len(host.Parts)), left: make([]atomic.Int32, len(d.Variables)+1)}
	r.opened.Store(d.First)
	r.reset()
	return r
}

// Attach makes the shards that add the gradients of the host. host delivers
// their events to the workers of the host.
func (r *Relay) Attach(self cluster.Task, host aggregate.Host) *aggregate.Shards {
	r.shards = aggregate.NewRelay(r.d, self, host, r.workers, r)
	for variable := range len(r.d.Variables) + 1 {
		slot, ok := r.shards.Find(layout.Place{Variable: variable})
		if !ok {
			slot = -1
		}
		r.slots = append(r.slots, slot)
	}
	r.Outbox = aggregate.NewOutbox(r.d, r.host.Parts, r.Takes)
	r.Rows = newRequests(r.d, r.rank, len(r.workers.Contributors), r.holders, host)
	return r.shards
}

// Takes reports whether the relay aggregates the gradients of a variable.
func (r *Relay) Takes(variable int) bool { return r.slots[variable] >= 0 }

// Begin counts a worker that begins the step, and its virtual workers with
// data. After the last worker of the host it calls holders.Begin. The step
// cannot end before that.
func (r *Relay) Begin(rank int, step uint64, b aggregate.Beginning) {
	r.Rows.Begin(rank, step)
	r.mu.Lock()
	c := r.workers.Contributor(rank)
	for i, part := range c.Parts {
		r.present[r.above(part)] += b.Present[i]
	}
	r.begun++
	last := r.begun == len(r.workers.Contributors)
	var payload []byte
	if last {
		payload = message.EncodeBeginning(nil, aggregate.Beginning{Rate: r.shards.Rate(0), Present: r.present})
		clear(r.present)
		r.begun = 0
	}
	r.mu.Unlock()
	if last {
		r.opened.Add(1)
		r.holders.Begin(payload)
	}
}

// above returns the index of the part of the host that contains vertex v of the
// tree.
func (r *Relay) above(v int) int {
	below := r.workers.Tree.Below(v)
	for i, part := range r.host.Parts {
		if whole := r.workers.Tree.Below(part); whole.Lo <= below.Lo && below.Hi <= whole.Hi {
			return i
		}
	}
	panic("relay: a worker's part is outside its host's")
}

// Contribute adds a sum of the first worker's own gradients.
func (r *Relay) Contribute(variable, part int, sum aggregate.Sum) {
	me, slot := r.workers.Contributor(r.rank), r.slots[variable]
	r.shards.All()[slot].Lend(0, me.First+part, sum)
	r.shards.Arrive(0, slot, me.First+part, true)
}

// Forward implements aggregate.Relay. It puts the sum of the host for a part
// into a bucket, and pushes the bucket when it is full.
func (r *Relay) Forward(variable, part int, sum aggregate.Sum) {
	if bucket, full := r.Outbox.Put(variable, part, sum); full {
		r.holders.Push(bucket, part)
	}
}

// Early reports whether a value after so many steps is too early: not all
// workers of the host have begun the last of these steps.
func (r *Relay) Early(variable int, steps uint64) bool {
	return r.Takes(variable) && steps > r.opened.Load()
}

// Value records that a piece has its new value in the first worker's memory.
// After the last piece of the variable, the relay sends the variable to the
// other workers.
func (r *Relay) Value(variable int) {
	if r.Takes(variable) && r.left[variable].Add(-1) == 0 {
		r.tell(aggregate.Updated{Shard: r.slots[variable]})
	}
}

// Finish tells the other workers the outcome of the step.
func (r *Relay) Finish(end aggregate.Outcome) {
	r.reset()
	for i, v := range r.d.Variables {
		if v.Sparse != nil && r.Takes(i) {
			r.tell(aggregate.Updated{Shard: r.slots[i]})
		}
	}
	r.tell(aggregate.Closed{End: end})
}

func (r *Relay) tell(e aggregate.Event) {
	for _, c := range r.workers.Contributors {
		r.Rows.host.Tell(c.Rank, e)
	}
}

func (r *Relay) reset() {
	for i := range r.left {
		r.left[i].Store(0)
	}
	for _, p := range r.d.AllPieces() {
		r.left[p.Variable].Add(1)
	}
}
