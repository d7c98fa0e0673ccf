// Package localsum implements local aggregation: the first worker of a host
// communicates with the parameter servers on behalf of all workers of the
// host. It adds the gradients that these workers compute, and sends the sum to
// the servers. It requests each row of a sparse variable once for all of them,
// and forwards new values to them.
//
// To the other workers of its host, an Aggregator looks like a parameter
// server that holds whole variables. To the servers, it looks like a worker
// that has all virtual workers (equal parts of the batch) of the host. An
// Aggregator opens no connection itself: it sends frames to the servers
// through Holders, and to the workers of the host through an aggregate.Host.
package localsum

import (
	"sync"
	"sync/atomic"

	"github.com/plx-run/plx/trainer/aggregate"
	"github.com/plx-run/plx/trainer/cluster"
	"github.com/plx-run/plx/trainer/exchange/message"
	"github.com/plx-run/plx/trainer/layout"
)

// Holders sends frames from the first worker of a host to the shard holders
// (the tasks that keep variables). Its methods do not block.
type Holders interface {
	// Begin begins a step. It sends a Step frame with the given payload, and
	// then the buckets that were passed to Push before.
	Begin(payload []byte)
	// Push sends the sums of a bucket (a group of variables). part is the
	// subtree of the summation tree to which the sums belong. Before Begin is
	// called for the step, Push holds the sums back.
	Push(bucket, part int)
	// Request requests rows for a step from the tasks that hold them. It calls
	// done after all rows have arrived.
	Request(step uint64, rows []message.RowRequest, done func())
}

// Aggregator adds the gradients of the workers of a host. Its methods are safe
// for concurrent use.
type Aggregator struct {
	Rows   *Requests         // combines the requests for rows of the host's workers
	Outbox *aggregate.Outbox // sums of the host's gradients, to be sent to the tasks that hold the variables

	d       *layout.Declaration
	rank    int // rank of the worker that runs this Aggregator: the first worker of the host
	holders Holders
	shards  *aggregate.Shards   // adds the gradients that arrive from the host's workers; set by Attach
	workers *layout.Roster      // workers of the host, and the tree in which their gradients are added
	host    *layout.Contributor // the whole host: to the servers it is one contributor, because they get only the host's sums
	slots   []int               // by variable: index in shards.All() of the shard that adds its gradients, -1 if they are not added on this host; the last element is for the loss

	mu      sync.Mutex
	present []int          // number of virtual workers with data in the step that is beginning; indexed by part (subtree of the summation tree) of the host
	begun   int            // number of the host's workers that have begun the step
	opened  atomic.Uint64  // number of steps that all workers of the host have begun
	left    []atomic.Int32 // number of pieces whose new values have not arrived in this step; indexed by variable
}

// New returns the Aggregator for the worker with the given rank. It returns
// nil if that worker is not the first of its host, or is the only worker of
// its host.
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

// Attach creates the shards in which the Aggregator adds the gradients of the
// host's workers. Through the parameter host, the shards tell these workers
// about new values.
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

// Takes reports whether the gradients of a variable are added on this host
// before they are sent.
func (a *Aggregator) Takes(variable int) bool { return a.slots[variable] >= 0 }

// Begin records that one of the host's workers begins a step. b has the number
// of this worker's virtual workers (equal parts of the batch) with data. When
// the last worker of the host begins the step, Begin sends the Step frame to
// the parameter servers. They cannot complete the step without this frame.
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

// above returns the index of the host's part (a subtree of the summation tree)
// that contains vertex v.
func (a *Aggregator) above(v int) int {
	below := a.workers.Tree.Below(v)
	for i, part := range a.host.Parts {
		if whole := a.workers.Tree.Below(part); whole.Lo <= below.Lo && below.Hi <= whole.Hi {
			return i
		}
	}
	panic("localsum: a worker's part is outside its host's")
}

// Contribute adds a sum that the first worker itself has computed.
func (a *Aggregator) Contribute(variable, part int, sum aggregate.Sum) {
	me, slot := a.workers.Contributor(a.rank), a.slots[variable]
	a.shards.All()[slot].Lend(0, me.First+part, sum)
	a.shards.Arrive(0, slot, me.First+part, true)
}

// Forward implements aggregate.Relay. It receives the sum of the gradients of
// a variable over all workers of this host. part is the subtree of the
// summation tree to which the sum belongs. Once a bucket (group of variables)
// is complete, Forward sends it.
func (a *Aggregator) Forward(variable, part int, sum aggregate.Sum) {
	if bucket, full := a.Outbox.Put(variable, part, sum); full {
		a.holders.Push(bucket, part)
	}
}

// Early reports whether a new value of a variable arrives too early, which is
// an error. steps is the number of steps in the value. The value is too early
// if not all workers of the host have begun the last of these steps.
func (a *Aggregator) Early(variable int, steps uint64) bool {
	return a.Takes(variable) && steps > a.opened.Load()
}

// Value records that the first worker of the host has received the new value
// of a piece (part of a variable). After the last piece of the variable, it
// sends the variable to the other workers of the host.
func (a *Aggregator) Value(variable int) {
	if a.Takes(variable) && a.left[variable].Add(-1) == 0 {
		a.tell(aggregate.Updated{Shard: a.slots[variable]})
	}
}

// Finish sends the outcome of the step to the other workers of the host.
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
