package exchange

import (
	"fmt"
	"sync"
	"sync/atomic"

	"github.com/plx-run/plx/trainer/aggregate"
	"github.com/plx-run/plx/trainer/cluster"
	"github.com/plx-run/plx/trainer/layout"
)

// localPurpose is what workers of a host come to its first worker for.
const localPurpose = "local"

// relay adds, on the first worker of a host, what the workers of the host
// contribute to what servers own, as far as the tree allows, and passes new
// values on to them. To them it is a holder of whole variables, to the servers
// a worker with all of the host's leaves.
type relay struct {
	client  *Client
	local   *local
	server  *server // that the other workers of the host come to
	union   *union
	workers *layout.Roster      // of the host
	host    *layout.Contributor // this host, as the servers know it
	out     *aggregate.Outbox   // its sums
	gate    gate                // on their way
	slots   []int               // by variable, and the loss: its shard, -1: it is not added here

	mu      sync.Mutex
	present []int          // by part of the host: virtual workers present in the step that is being begun
	begun   int            // workers that have begun the step
	opened  atomic.Uint64  // steps that all of the host have begun
	left    []atomic.Int32 // by variable: pieces whose new values are to come
}

// first is the rank of the host's first worker.
func (r *relay) first() int { return r.client.rank }

// newRelay returns nil where the worker has nobody to relay for.
func newRelay(c *Client) (*relay, error) {
	ranks := c.d.HostOf(c.rank)
	if ranks.Lo != c.rank || ranks.Len() == 1 {
		return nil, nil
	}
	if c.config.Door == nil {
		return nil, fmt.Errorf("%s adds the gradients of its host and has no door for the other workers", c.config.Peers.Self)
	}
	host := layout.NewRoster(cluster.Task{Role: cluster.PS}, c.d).Contributor(c.rank)
	r := &relay{client: c, host: host, left: make([]atomic.Int32, len(c.own)), present: make([]int, len(host.Parts))}
	r.gate.closed = true
	s := newServer(c.config.Peers)
	r.local = newLocal(c, s, localPurpose)
	r.server = s
	r.workers = layout.NewHostRoster(c.tree, c.d, ranks, host.Parts)
	m := newMembers(len(c.d.Workers), s.end, noMemory)
	m.tell[c.rank] = func(aggregate.Event) {} // it knows
	shards := aggregate.NewRelay(c.d, c.config.Peers.Self, m, r.workers, r)
	for variable := range len(c.d.Variables) + 1 {
		slot, ok := shards.Find(layout.Place{Variable: variable})
		if !ok {
			slot = -1
		}
		r.slots = append(r.slots, slot)
	}
	r.out = aggregate.NewOutbox(c.d, r.host.Parts, r.takes)
	r.union = newUnion(r)
	r.opened.Store(c.d.First)
	s.take(shards, m)
	s.relay, s.local, s.filled, s.ranks = r, r.local, true, ranks
	s.declared[c.rank] = c.d
	r.local.serves.Store(&served{shards: shards})
	r.reset()
	return r, nil
}

// takes reports whether a variable's gradients are added here.
func (r *relay) takes(variable int) bool { return r.slots[variable] >= 0 }

// begin counts a worker that has begun the step and brings nothing more for
// absent parts. When all of the host have, it tells the holders of the step and
// of the sums that waited for that: from then on the step may end.
func (r *relay) begin(rank int, b aggregate.Beginning) {
	r.mu.Lock()
	c := r.workers.Contributor(rank)
	for i, part := range c.Parts {
		r.present[r.above(part)] += b.Present[i]
	}
	r.begun++
	last := r.begun == len(r.workers.Contributors)
	var payload []byte
	if last {
		payload = encodeBeginning(nil, aggregate.Beginning{Rate: r.server.shards.Rate(0), Present: r.present})
		clear(r.present)
		r.begun = 0
	}
	r.mu.Unlock()
	if last {
		r.opened.Add(1)
		r.gate.open(job{begin: payload, step: r.client.step})
	}
}

// above returns the part of the host that a vertex belongs to.
func (r *relay) above(v int) int {
	t := r.workers.Tree
	below := t.Below(v)
	for i, part := range r.host.Parts {
		if whole := t.Below(part); whole.Lo <= below.Lo && below.Hi <= whole.Hi {
			return i
		}
	}
	panic("owner: a worker's part is outside its host's")
}

// contribute brings what this worker itself has added.
func (r *relay) contribute(variable, part int, sum aggregate.Sum) {
	me, slot := r.workers.Contributor(r.client.rank), r.slots[variable]
	r.server.shards.All()[slot].Lend(0, me.First+part, sum)
	r.server.shards.Arrive(0, slot, me.First+part, true)
}

// Forward sends the host's sum of a part, with the bucket that it fills.
func (r *relay) Forward(variable, part int, sum aggregate.Sum) {
	if bucket, full := r.out.Put(variable, part, sum); full {
		r.gate.post(job{bucket: bucket, part: part, step: r.client.step})
	}
}

// early reports whether a value after so many steps cannot be: not all of the
// host have begun the last of them.
func (r *relay) early(variable int, steps uint64) bool {
	return r.takes(variable) && steps > r.opened.Load()
}

// value notes that a piece has its new value in this worker's memory; with
// its last piece the variable goes to the other workers.
func (r *relay) value(variable int) {
	if r.takes(variable) && r.left[variable].Add(-1) == 0 {
		r.tell(aggregate.Updated{Shard: r.slots[variable]})
	}
}

// finish tells the other workers how the step ended.
func (r *relay) finish(end aggregate.Outcome) {
	r.gate.shut() // before others of the host begin the next step
	r.reset()
	for i, v := range r.client.d.Variables {
		if v.Sparse != nil && r.takes(i) {
			r.tell(aggregate.Updated{Shard: r.slots[i]})
		}
	}
	r.tell(aggregate.Closed{End: end})
}

func (r *relay) tell(e aggregate.Event) {
	for _, c := range r.workers.Contributors {
		r.server.members.Tell(c.Rank, e)
	}
}

func (r *relay) reset() {
	for i := range r.left {
		r.left[i].Store(0)
	}
	for _, p := range r.client.d.AllPieces() {
		r.left[p.Variable].Add(1)
	}
}
