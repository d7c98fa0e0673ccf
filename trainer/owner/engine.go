package owner

import (
	"fmt"
	"math"

	"github.com/plx-run/plx/trainer/cluster"
	"github.com/plx-run/plx/trainer/wire"
)

// engine is an owner without its connections: it takes what contributors
// bring, updates pieces and tells members what became of them. Its methods
// may be called by any goroutine, for one rank by one at a time.
type engine struct {
	d       *Declaration
	self    cluster.Task
	roster  *roster
	slots   []slot
	where   map[place]int // index in slots
	groups  []*group
	clock   *clock        // bounded mode only
	arbiter *arbiter      // backup mode, on the first owner only
	barrier *barrier      // nil: workers are in step
	relay   *relay        // sums do not end here
	fail    func(error)   // ends the training
	tell    []func(event) // by rank; never blocks; set before the first step
}

// place names a piece within a declaration.
type place struct{ variable, offset int }

// event is what a member is told: as many per step as engine.events says.
type event struct {
	slot int // that is updated, -1: the norm is known
	end  outcome
	ask  bool        // the member is to add the squares of its group instead; not counted
	over bool        // the training has ended without the member's step instead; not counted
	next *successor  // variables have moved instead; not counted
	say  *wire.Frame // instead, as it is; not counted
}

// outcome is what an owner knows of a step.
type outcome struct {
	leaves  int // that took part
	norm    float64
	updates uint64 // in backup mode: steps that the training has made
	saved   bool   // right before it
}

func newEngine(d *Declaration, self cluster.Task, memory func(Piece) []byte) (*engine, error) {
	e := &engine{d: d, self: self, roster: newRoster(d, self), where: map[place]int{}, tell: make([]func(event), len(d.Workers))}
	index := d.ownerIndex(self)
	for _, p := range d.pieces() {
		if p.Owner != index {
			continue
		}
		made, err := e.newSlot(p, memory(p))
		if err != nil {
			return nil, err
		}
		e.where[place{p.Variable, p.Offset}] = len(e.slots)
		e.slots = append(e.slots, made)
	}
	e.group()
	if d.Sync.Mode == Bounded {
		e.clock = newClock(d.firsts(), uint64(d.Sync.Number))
	}
	if d.Sync.Mode == Backup && index == 0 {
		e.arbiter = newArbiter(len(d.Workers), d.Sync.Number, d.first(0))
	}
	if !d.Sync.Together() {
		e.barrier = newBarrier(e.groups)
	}
	return e, nil
}

// group makes the groups of contributors before the first step.
func (e *engine) group() {
	for i, members := range e.roster.groups {
		first := e.d.firstOf(i)
		g := &group{index: i, begun: make([]bool, len(e.roster.contributors)), rate: math.NaN(), left: len(e.slots), step: first, made: first, applied: first}
		for m := members.Lo; m < members.Hi; m++ {
			g.members = append(g.members, m)
		}
		g.chosen = g.members
		e.groups = append(e.groups, g)
	}
}

func (e *engine) newSlot(p Piece, memory []byte) (slot, error) {
	v := e.d.variable(p.Variable)
	switch {
	case p.Variable == e.d.tally():
		s, err := newDense[float64](e.d, e.roster, p, memory)
		return tally{s, e.d.Sum}, err
	case v.Sparse != nil && v.Dtype == Float32:
		return newRows[float32](e.d, e.roster, p)
	case v.Sparse != nil:
		return newRows[float64](e.d, e.roster, p)
	case v.Dtype == Float32:
		return newDense[float32](e.d, e.roster, p, memory)
	}
	return newDense[float64](e.d, e.roster, p, memory)
}

// events is how many events a member is told per step.
func (e *engine) events() int {
	if e.lastEvent() {
		return len(e.slots) + 1
	}
	return len(e.slots)
}

// lastEvent reports whether a step ends with an event of no slot.
func (e *engine) lastEvent() bool { return e.relay != nil || e.d.norms() }

// audience is which copy of the values a rank is sent, -1: the values.
func (e *engine) audience(rank int) int {
	switch {
	case e.d.audiences() == 0:
		return -1
	case e.d.Sync.Mode == Grouped:
		return e.roster.contributor(rank).group
	}
	return rank
}

// beginning is what a contributor says first in a step.
type beginning struct {
	rate    float64
	present []int // by part: leaves with data
}

// begin notes that a contributor begins a step and which of its parts are
// absent.
func (e *engine) begin(rank int, step uint64, b beginning) error {
	c := e.roster.contributor(rank)
	g := e.groups[c.group]
	absent, err := e.enter(g, c, step, b)
	if err != nil {
		return err
	}
	for part, n := range b.present {
		if n == 0 {
			e.absent(g, c.first+part)
		}
	}
	for _, i := range absent {
		other := &e.roster.contributors[i]
		for part := range other.parts {
			e.absent(g, other.first+part)
		}
	}
	if e.relay != nil {
		e.relay.union.begin(rank, step)
		e.relay.begin(g)
	}
	return nil
}

func (e *engine) absent(g *group, input int) {
	for i := range e.slots {
		e.arrive(g, i, input, false)
	}
}

// arrive says that an input of a slot is there, or absent, and does all that
// it completes.
func (e *engine) arrive(g *group, slot, input int, present bool) {
	if e.slots[slot].arrive(g.index, input, present) {
		e.complete(g, slot)
	}
}

// complete does all that the sum of a slot brings about.
func (e *engine) complete(g *group, slot int) {
	if !e.barrier.enter(g, func() { e.complete(g, slot) }) {
		return
	}
	defer e.barrier.exit()
	s := e.slots[slot]
	s.settle(g.index, g.leavesIn(slot))
	if e.d.norms() {
		s.measure(g.index)
	}
	if !e.d.clips() {
		e.update(g, slot, 1)
	}
	// What is read here may change once somebody is told of the last slot.
	g.mu.Lock()
	end, chosen := g.outcome, g.chosen
	g.left--
	last := g.left == 0
	if !e.d.clips() {
		g.apply(last)
	}
	var granted []int
	if last {
		g.left, g.asked = len(e.slots), e.d.norms()
		g.made++
		granted = g.granted()
	}
	made := g.made
	g.mu.Unlock()
	if last && e.d.norms() {
		e.tell[e.leader(g)](event{ask: true})
	}
	switch {
	case e.d.clips():
	case e.clock == nil:
		e.updated(g, slot, end, chosen)
	case last && !e.d.norms():
		e.finished(g)
	}
	for _, rank := range granted {
		e.give(rank, outcome{updates: made})
	}
}

// update applies a slot's sum.
func (e *engine) update(g *group, slot int, scale float64) {
	s := e.slots[slot]
	if err := s.apply(g.index, g.rate, scale); err != nil {
		e.fail(fmt.Errorf("%s: update variable %q: %w", e.self, e.d.variable(s.piece().Variable).Name, err))
	}
}

// updated tells those that wait for the slot's value.
func (e *engine) updated(g *group, slot int, end outcome, chosen []int) {
	if e.d.Sync.Mode == Grouped {
		e.slots[slot].keep(g.index)
	}
	for _, i := range chosen {
		rank := e.roster.contributors[i].rank
		if e.d.Sync.Mode == Asynchronous || e.d.Sync.Mode == Backup {
			e.slots[slot].keep(rank)
		}
		e.tell[rank](event{slot: slot, end: end})
	}
}

// leader is the worker that adds the norm of a group.
func (e *engine) leader(g *group) int { return e.roster.contributors[g.members[0]].rank }

// scale is the leader's answer to the squares of its group: the norm, and
// what every gradient is multiplied by.
func (e *engine) scale(rank int, norm, factor float64) error {
	c := e.roster.contributor(rank)
	g := e.groups[c.group]
	g.mu.Lock()
	if !g.asked || e.leader(g) != rank {
		g.mu.Unlock()
		return fmt.Errorf("says a norm that nobody asked for")
	}
	g.asked = false
	g.outcome.norm = norm
	end := g.outcome
	g.mu.Unlock()
	if e.d.clips() {
		e.clip(g, end, factor)
		return nil
	}
	e.normed(g, end)
	return nil
}

// clip updates all slots by their sums times factor.
func (e *engine) clip(g *group, end outcome, factor float64) {
	if !e.barrier.enter(g, func() { e.clip(g, end, factor) }) {
		return
	}
	defer e.barrier.exit()
	for i := range e.slots {
		e.update(g, i, factor)
		if e.clock == nil {
			e.updated(g, i, end, g.members)
		}
	}
	g.mu.Lock()
	g.apply(true)
	g.mu.Unlock()
	e.normed(g, end)
}

// normed ends a step whose norm is known.
func (e *engine) normed(g *group, end outcome) {
	if e.clock != nil {
		e.finished(g)
		return
	}
	for _, i := range g.members {
		e.tell[e.roster.contributors[i].rank](event{slot: -1, end: end})
	}
}

// finished notes, in bounded mode, that all pieces have a step of g's worker
// and answers every worker that need not wait any longer.
func (e *engine) finished(g *group) {
	e.release(e.clock.finish(e.roster.contributors[g.members[0]].rank))
}

// release sends values as they are now.
func (e *engine) release(ranks []int) {
	for _, rank := range ranks {
		e.give(rank, e.groups[e.roster.contributor(rank).group].outcome)
	}
}

// give sends a worker all values as they are now.
func (e *engine) give(rank int, end outcome) {
	for i, s := range e.slots {
		s.keep(rank)
		e.tell[rank](event{slot: i, end: end})
	}
	if e.d.norms() {
		e.tell[rank](event{slot: -1, end: end})
	}
}

// leave notes that a worker will send no more.
func (e *engine) leave(rank int) {
	if e.relay != nil {
		e.relay.union.leave(rank)
	}
	if e.barrier != nil {
		e.groups[e.roster.contributor(rank).group].leave()
		e.barrier.wake()
	}
	e.stop(rank)
}

// stop notes that a worker takes no further step, perhaps before it leaves.
func (e *engine) stop(rank int) {
	if e.clock != nil {
		e.release(e.clock.leave(rank))
	}
	if e.arbiter != nil {
		for _, waiting := range e.arbiter.leave(rank) {
			e.tell[waiting](event{over: true})
		}
	}
}
