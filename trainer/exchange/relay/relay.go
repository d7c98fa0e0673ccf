// Package relay is local aggregation: the first worker of a host adds what all
// workers of the host contribute to variables on servers, and sends one
// contribution. It requests the union of the rows that they want, and passes
// new values on to them.
//
// To the other workers of its host a Relay is a shard holder of whole
// variables. To the servers it is a worker that has all virtual workers of the
// host. It opens no connection itself: its Holders reach the servers, and an
// aggregate.Host reaches the workers.
package relay

import (
	"sync"
	"sync/atomic"

	"github.com/plx-run/plx/trainer/aggregate"
	"github.com/plx-run/plx/trainer/cluster"
	"github.com/plx-run/plx/trainer/exchange/message"
	"github.com/plx-run/plx/trainer/layout"
)

// Holders are the shard holders as the first worker of a host reaches them. Its
// methods never block.
type Holders interface {
	// Begin sends the payload of a step frame, and then the sums that Push held.
	Begin(payload []byte)
	// Push sends a bucket of Outbox for a part, or holds it until Begin.
	Push(bucket, part int)
	// Request requests rows for a step, and calls done when all are there.
	Request(step uint64, wanted []message.Wanted, done func())
}

// Relay adds the contributions of a host. Any goroutine may call its methods.
type Relay struct {
	Rows   *Requests         // what the workers of the host want
	Outbox *aggregate.Outbox // sums of the host, on their way to the shard holders

	d       *layout.Declaration
	rank    int // of the first worker
	holders Holders
	shards  *aggregate.Shards   // sums of the host; set by Attach
	workers *layout.Roster      // of the host
	host    *layout.Contributor // this host, as the servers know it
	slots   []int               // by variable, and the loss: its shard, -1: it is not added here

	mu      sync.Mutex
	present []int          // by part of the host: virtual workers present in the step that is being begun
	begun   int            // workers that have begun the step
	opened  atomic.Uint64  // steps that all of the host have begun
	left    []atomic.Int32 // by variable: pieces whose new values are to come
}

// New returns the Relay of a worker; nil: it is not the first of several
// workers of a host.
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

// Attach makes the shards of the sums, whose members tell hears of steps.
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

// Takes reports whether a variable's gradients are added here.
func (r *Relay) Takes(variable int) bool { return r.slots[variable] >= 0 }

// Begin counts a worker that has begun the step and brings nothing more for
// absent parts. When all of the host have, it tells the holders of the step and
// of the sums that waited for that: from then on the step may end.
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

// above returns the part of the host that a vertex belongs to.
func (r *Relay) above(v int) int {
	below := r.workers.Tree.Below(v)
	for i, part := range r.host.Parts {
		if whole := r.workers.Tree.Below(part); whole.Lo <= below.Lo && below.Hi <= whole.Hi {
			return i
		}
	}
	panic("relay: a worker's part is outside its host's")
}

// Contribute brings what the first worker itself has added.
func (r *Relay) Contribute(variable, part int, sum aggregate.Sum) {
	me, slot := r.workers.Contributor(r.rank), r.slots[variable]
	r.shards.All()[slot].Lend(0, me.First+part, sum)
	r.shards.Arrive(0, slot, me.First+part, true)
}

// Forward implements aggregate.Relay: it sends the host's sum of a part, with
// the bucket that it fills.
func (r *Relay) Forward(variable, part int, sum aggregate.Sum) {
	if bucket, full := r.Outbox.Put(variable, part, sum); full {
		r.holders.Push(bucket, part)
	}
}

// Early reports whether a value after so many steps cannot be: not all of the
// host have begun the last of them.
func (r *Relay) Early(variable int, steps uint64) bool {
	return r.Takes(variable) && steps > r.opened.Load()
}

// Value notes that a piece has its new value in the first worker's memory. With
// its last piece the variable goes to the other workers.
func (r *Relay) Value(variable int) {
	if r.Takes(variable) && r.left[variable].Add(-1) == 0 {
		r.tell(aggregate.Updated{Shard: r.slots[variable]})
	}
}

// Finish tells the other workers how the step ended.
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
