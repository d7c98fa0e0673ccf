// Package localsum implements local aggregation: the first worker of a host deals
// with the parameter servers on behalf of all workers of the host. It adds
// their gradients of variables on servers and sends one contribution. It
// requests the rows of sparse variables for all of them, each row once. It
// passes new values on to them.
//
// To the other workers of its host, an Aggregator is a shard holder of whole
// variables. To the servers, it is a worker that has all virtual workers of the
// host. An Aggregator opens no connection itself: its Holders reach the servers, and
// an aggregate.Host reaches the workers.
package localsum

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

// Aggregator aggregates the contributions of the workers of a host. Any goroutine
// may call its methods.
type Aggregator struct {
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

// New returns the Aggregator of a worker. It returns nil if the worker is not the
// first of several workers of a host.
func New(d *layout.Declaration, rank int, holders Holders) *Aggregator {
	ranks := d.HostOf(rank)
	if ranks.Lo != rank || ranks.Len() == 1 {
		return nil
	}
	host := layout.NewRoster(cluster.Task{Role: cluster.PS}, d).Contributor(rank)
	tree := layout.NewTree(d.VirtualWorkers)
	a := &Aggregator{d: d, rank: rank, holders: holders, host: host, workers: layout.NewHostRoster(tree, d, ranks, host.Parts),
		present: make([]int, len(host.Parts)), left: make([]atomic.Int32, len(d.Variables)+1)}
	a.opened.Store(d.First)
	a.reset()
	return a
}

// Attach makes the shards that add the gradients of the host. host delivers
// their events to the workers of the host.
func (a *Aggregator) Attach(self cluster.Task, host aggregate.Host) *aggregate.Shards {
	a.shards = aggregate.NewRelay(a.d, self, host, a.workers, a)
	for variable := range len(a.d.Variables) + 1 {
		slot, ok := a.shards.Find(layout.Place{Variable: variable})
		if !ok {
			slot = -1
		}
		a.slots = append(a.slots, slot)
	}
	a.Outbox = aggregate.NewOutbox(a.d, a.host.Parts, a.Takes)
	a.Rows = newRequests(a.d, a.rank, len(a.workers.Contributors), a.holders, host)
	return a.shards
}

// Takes reports whether the aggregator aggregates the gradients of a variable.
func (a *Aggregator) Takes(variable int) bool { return a.slots[variable] >= 0 }

// Begin counts a worker that begins the step, and its virtual workers with
// data. After the last worker of the host it calls holders.Begin. The step
// cannot end before that.
func (a *Aggregator) Begin(rank int, step uint64, b aggregate.Beginning) {
	a.Rows.Begin(rank, step)
	a.mu.Lock()
	c := a.workers.Contributor(rank)
	for i, part := range c.Parts {
		a.present[a.above(part)] += b.Present[i]
	}
	a.begun++
	last := a.begun == len(a.workers.Contributors)
	var payload []byte
	if last {
		payload = message.EncodeBeginning(nil, aggregate.Beginning{Rate: a.shards.Rate(0), Present: a.present})
		clear(a.present)
		a.begun = 0
	}
	a.mu.Unlock()
	if last {
		a.opened.Add(1)
		a.holders.Begin(payload)
	}
}

// above returns the index of the part of the host that contains vertex v of the
// tree.
func (a *Aggregator) above(v int) int {
	below := a.workers.Tree.Below(v)
	for i, part := range a.host.Parts {
		if whole := a.workers.Tree.Below(part); whole.Lo <= below.Lo && below.Hi <= whole.Hi {
			return i
		}
	}
	panic("localsum: a worker's part is outside its host's")
}

// Contribute adds a sum of the first worker's own gradients.
func (a *Aggregator) Contribute(variable, part int, sum aggregate.Sum) {
	me, slot := a.workers.Contributor(a.rank), a.slots[variable]
	a.shards.All()[slot].Lend(0, me.First+part, sum)
	a.shards.Arrive(0, slot, me.First+part, true)
}

// Forward implements aggregate.Relay. It puts the sum of the host for a part
// into a bucket, and pushes the bucket when it is full.
func (a *Aggregator) Forward(variable, part int, sum aggregate.Sum) {
	if bucket, full := a.Outbox.Put(variable, part, sum); full {
		a.holders.Push(bucket, part)
	}
}

// Early reports whether a value after so many steps is too early: not all
// workers of the host have begun the last of these steps.
func (a *Aggregator) Early(variable int, steps uint64) bool {
	return a.Takes(variable) && steps > a.opened.Load()
}

// Value records that a piece has its new value in the first worker's memory.
// After the last piece of the variable, the aggregator sends the variable to the
// other workers.
func (a *Aggregator) Value(variable int) {
	if a.Takes(variable) && a.left[variable].Add(-1) == 0 {
		a.tell(aggregate.Updated{Shard: a.slots[variable]})
	}
}

// Finish tells the other workers the outcome of the step.
func (a *Aggregator) Finish(end aggregate.Outcome) {
	a.reset()
	for i, v := range a.d.Variables {
		if v.Sparse != nil && a.Takes(i) {
			a.tell(aggregate.Updated{Shard: a.slots[i]})
		}
	}
	a.tell(aggregate.Closed{End: end})
}

func (a *Aggregator) tell(e aggregate.Event) {
	for _, c := range a.workers.Contributors {
		a.Rows.host.Tell(c.Rank, e)
	}
}

func (a *Aggregator) reset() {
	for i := range a.left {
		a.left[i].Store(0)
	}
	for _, p := range a.d.AllPieces() {
		a.left[p.Variable].Add(1)
	}
}
