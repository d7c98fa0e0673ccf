package owner

import (
	"fmt"
	"sync/atomic"

	"github.com/plx-run/plx/trainer/cluster"
	"github.com/plx-run/plx/trainer/sparse"
	"github.com/plx-run/plx/trainer/wire"
)

// localPurpose is what workers of a host come to its first worker for.
const localPurpose = "local"

// relay adds, on the first worker of a host, what the workers of the host
// contribute to what servers own, as far as the tree allows, and passes new
// values on to them. To them it is an owner of whole variables, to the servers
// a worker with all of the host's leaves.
type relay struct {
	client *Client
	local  *local
	engine *engine
	union  *union
	host   *contributor // this host, as the servers know it
	out    *outbox      // its sums
	gate   gate         // on their way
	slots  []int        // by variable, and the tally: its slot, -1: it is not added here

	present []int          // by part of the host: leaves present in the step that is being begun
	begun   atomic.Int32   // workers that have begun the step
	opened  atomic.Uint64  // steps that all of the host have begun
	left    []atomic.Int32 // by variable: pieces whose new values are to come
}

// first is the rank of the host's first worker.
func (r *relay) first() int { return r.client.rank }

// newRelay returns nil where the worker has nobody to relay for.
func newRelay(c *Client) (*relay, error) {
	ranks := c.d.hostOf(c.rank)
	if ranks.Lo != c.rank || ranks.Len() == 1 {
		return nil, nil
	}
	if c.config.Door == nil {
		return nil, fmt.Errorf("%s adds the gradients of its host and has no door for the other workers", c.config.Peers.Self)
	}
	r := &relay{client: c, host: newRoster(c.d, cluster.Task{Role: cluster.PS}).contributor(c.rank), left: make([]atomic.Int32, len(c.own))}
	r.gate.closed = true
	r.present = make([]int, len(r.host.parts))
	s := newServer(c.config.Peers)
	r.local = newLocal(c, s, localPurpose)
	r.engine = r.newEngine(ranks)
	r.out = newOutbox(c.d, r.host.parts, r.takes)
	r.union = newUnion(r)
	r.opened.Store(c.d.First)
	r.engine.fail = s.end
	r.engine.tell[c.rank] = func(event) {} // it knows
	s.take(r.engine)
	s.local, s.filled, s.ranks = r.local, true, ranks
	s.declared[c.rank] = c.d
	r.local.serves.Store(&served{engine: r.engine})
	r.reset()
	return r, nil
}

// takes reports whether a variable's gradients are added here.
func (r *relay) takes(variable int) bool { return r.slots[variable] >= 0 }

// newEngine returns an engine over whole variables whose sums do not end here.
func (r *relay) newEngine(ranks Range) *engine {
	d := r.client.d
	e := &engine{d: d, self: r.client.config.Peers.Self, relay: r, where: map[place]int{}, tell: make([]func(event), len(d.Workers))}
	e.roster = newHostRoster(r.client.tree, d, ranks)
	g := &group{begun: make([]bool, ranks.Len()), left: -1, step: d.First}
	var inputs []int
	for i, c := range e.roster.contributors {
		g.members = append(g.members, i)
		inputs = append(inputs, c.parts...)
	}
	g.chosen = g.members
	e.groups = []*group{g}
	p := newPlan(e.roster.tree, inputs, r.host.parts)
	for i, aggregated := range d.aggregated() {
		if !aggregated {
			r.slots = append(r.slots, -1)
			continue
		}
		r.slots = append(r.slots, len(e.slots))
		e.where[place{i, 0}] = len(e.slots)
		e.slots = append(e.slots, r.newSlot(d.variable(i), Piece{Variable: i, Count: d.variable(i).units()}, p))
	}
	return e
}

// newHostRoster is the roster of the workers of one host.
func newHostRoster(t *Tree, d *Declaration, ranks Range) *roster {
	r := &roster{tree: t, of: make([]int, len(d.Workers))}
	for rank := range r.of {
		r.of[rank] = -1
	}
	first := 0
	for rank := ranks.Lo; rank < ranks.Hi; rank++ {
		r.of[rank] = len(r.contributors)
		c := contributor{rank: rank, leaves: d.Workers[rank], first: first}
		c.parts = t.Parts(c.leaves.Lo, c.leaves.Hi)
		first += len(c.parts)
		r.contributors = append(r.contributors, c)
	}
	return r
}

// count notes what a worker of the host has. It needs the group's mu.
func (r *relay) count(c *contributor, b beginning) {
	for i, part := range c.parts {
		r.present[r.above(part)] += b.present[i]
	}
}

// begin counts a worker that has begun the step and brings nothing more for
// absent parts. When all of the host have, it tells the owners of the step and
// of the sums that waited for that: from then on the step may end.
func (r *relay) begin(g *group) {
	if r.begun.Add(1) < int32(len(g.members)) {
		return
	}
	r.begun.Store(0)
	r.opened.Add(1)
	payload := encodeBeginning(nil, beginning{rate: g.rate, present: r.present})
	clear(r.present)
	r.gate.open(job{begin: payload, step: r.client.step})
}

// above returns the part of the host that a vertex belongs to.
func (r *relay) above(v int) int {
	t := r.engine.roster.tree
	for i, part := range r.host.parts {
		if t.vertices[part].lo <= t.vertices[v].lo && t.vertices[v].hi <= t.vertices[part].hi {
			return i
		}
	}
	panic("owner: a worker's part is outside its host's")
}

// contribute brings what this worker itself has added.
func (r *relay) contribute(variable, part int, sum any) {
	me, slot := r.engine.roster.contributor(r.client.rank), r.slots[variable]
	r.engine.slots[slot].lend(0, me.first+part, sum)
	r.engine.arrive(r.engine.groups[0], slot, me.first+part, true)
}

// forward sends the host's sum of a part, with the bucket that it fills.
func (r *relay) forward(variable, part int, sum any) {
	if bucket, full := r.out.put(variable, part, sum); full {
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
		r.tell(event{slot: r.slots[variable]})
	}
}

// finish tells the other workers how the step ended.
func (r *relay) finish(end outcome) {
	r.gate.shut() // before others of the host begin the next step
	r.reset()
	for i, v := range r.client.d.Variables {
		if v.Sparse != nil && r.takes(i) {
			r.tell(event{slot: r.slots[i]})
		}
	}
	r.tell(event{slot: -1, end: end})
}

func (r *relay) tell(e event) {
	for _, c := range r.engine.roster.contributors {
		r.engine.tell[c.rank](e)
	}
}

func (r *relay) reset() {
	for i := range r.left {
		r.left[i].Store(0)
	}
	for _, p := range r.client.d.pieces() {
		r.left[p.Variable].Add(1)
	}
}

// relayed is the slot of a relay: sums go on to the owners, values come from
// there.
type relayed[O any] struct {
	Piece
	*progress[O]
	relay   *relay
	inputs  []O
	payload func(input int, length uint64, read func([]byte) error) (O, error)
	in      func(any) O // from what a gather makes
	out     func(O) any // and back
}

func (r *relay) newSlot(v Variable, piece Piece, p *plan) slot {
	switch {
	case v.Sparse != nil && v.Dtype == Float32:
		return relayRows[float32](r, v, piece, p)
	case v.Sparse != nil:
		return relayRows[float64](r, v, piece, p)
	case v.Dtype == Float32:
		return relayDense[float32](r, piece, p)
	}
	return relayDense[float64](r, piece, p)
}

func relayDense[T wire.Float](r *relay, piece Piece, p *plan) *relayed[[]T] {
	buffers := make([][]T, len(p.inputs))
	return &relayed[[]T]{
		Piece: piece, relay: r, progress: newProgress(p, addDense[T]), inputs: make([][]T, len(p.inputs)),
		payload: func(input int, length uint64, read func([]byte) error) ([]T, error) {
			if buffers[input] == nil {
				buffers[input] = make([]T, piece.Count)
			}
			if want := len(wire.Bytes(buffers[input])); length != uint64(want) {
				return nil, fmt.Errorf("gradient of variable %d of %d bytes, want %d", piece.Variable, length, want)
			}
			return buffers[input], read(wire.Bytes(buffers[input]))
		},
		in:  func(sum any) []T { return wire.Floats[T](sum.([]byte)) },
		out: func(sum []T) any { return wire.Bytes(sum) },
	}
}

func relayRows[T wire.Float](r *relay, v Variable, piece Piece, p *plan) *relayed[sparse.Rows[T]] {
	buffers := make([]rowsBuffer[T], len(p.inputs))
	return &relayed[sparse.Rows[T]]{
		Piece: piece, relay: r, progress: newProgress(p, mergeRows[T]), inputs: make([]sparse.Rows[T], len(p.inputs)),
		payload: func(input int, length uint64, read func([]byte) error) (sparse.Rows[T], error) {
			return buffers[input].receive(piece, v.width(), length, read)
		},
		in:  func(sum any) sparse.Rows[T] { return sum.(sparse.Rows[T]) },
		out: func(sum sparse.Rows[T]) any { return sum },
	}
}

func (s *relayed[O]) piece() Piece { return s.Piece }

func (s *relayed[O]) receive(_, input int, length uint64, read func([]byte) error) (present bool, err error) {
	s.inputs[input], err = s.payload(input, length, read)
	return true, err // no rows are still a contribution: the owners wait for it
}

func (s *relayed[O]) lend(_, input int, memory any) { s.inputs[input] = s.in(memory) }

func (s *relayed[O]) arrive(_, input int, present bool) bool {
	part, sum, done := s.progress.arrive(input, operand[O]{present, s.inputs[input]})
	if done && sum.present {
		s.relay.forward(s.Variable, part, s.out(sum.sum))
	}
	return false // the step does not end here
}

// value is what the owners sent to this worker's memory.
func (s *relayed[O]) value(int) []byte { return s.relay.client.pieceMemory(s.Piece) }

func (*relayed[O]) settle(int, int)                   {}
func (*relayed[O]) measure(int)                       {}
func (*relayed[O]) squares(int) []float64             { return nil }
func (*relayed[O]) apply(int, float64, float64) error { return nil }
func (*relayed[O]) keep(int)                          {}
