// Package aggregate is the state of the shards that a task holds: it puts the
// gradients of a step together as the synchronisation mode says, applies the
// optimiser, and keeps the values. It knows no network and no files.
//
// [Shards] are all pieces of variables that one task holds. A contributor is a
// worker, or the first worker of a host if that worker adds for its host. Each
// contributor begins a step and brings sums of gradients. After all sums of the
// step have arrived for a [Shard], the optimiser updates it. Each contributor
// whose gradients count then gets an [Event]:
//
//	shards, err := aggregate.New(&declaration, self, host) // host is told the events
//	err = shards.Begin(rank, step, aggregate.Beginning{Rate: 0.1, Present: present})
//	present, err := shard.Receive(group, input, length, read)
//	shards.Arrive(group, i, input, present) // may tell Updated
//
// A sum is added along the tree of package layout, so it has the same bits
// whoever comes first. [Own] adds in the same way what the virtual workers of
// one worker compute, and [Outbox] collects sums until a bucket is full.
//
// # Alignment
//
// If workers are not in step, a checkpoint is a consistent cut. An [Alignment]
// applies no step after the cut until the values at the cut are copied.
package aggregate

import (
	"errors"
	"fmt"

	"github.com/plx-run/plx/trainer/cluster"
	"github.com/plx-run/plx/trainer/layout"
	"github.com/plx-run/plx/trainer/policy"
)

// Shards are all pieces that a task holds. Any goroutine may call the methods,
// for one rank one at a time.
type Shards struct {
	steps   completion
	where   map[layout.Place]int // by variable and offset: index of the shard in steps.list
	selects policy.Selection     // decides whose gradients count; set on the first holder only; nil means that all count
	home    Home                 // keeps the values; nil means that the shards do
	relay   Relay                // takes the sums of a host's first worker; nil means that the sums update the shards here
}

// Relay passes on the sums of Shards that hold nothing themselves: those of a
// host's first worker. Forward may be called for several variables side by side.
type Relay interface {
	Forward(variable, part int, s Sum)
}

// New makes the shards of a task, with values of zero.
func New(d *layout.Declaration, self cluster.Task, host Host) (*Shards, error) {
	s := newShards(d, self, host, layout.NewRoster(self, d))
	index := d.HolderIndex(self)
	for _, p := range d.PiecesOf(index) {
		made, err := newShard(d, s.steps.roster.Plans, p, host.Memory(p))
		if err != nil {
			return nil, err
		}
		s.add(made)
	}
	groups := s.group()
	var align *Alignment
	if d.Sync.Cuts() {
		align = newAlignment(groups)
	}
	s.steps.start(groups, d.Sync.NewPace(d.FirstSteps()), align)
	if index == 0 {
		s.selects = d.Sync.NewSelection(len(d.Workers), d.FirstStep(0))
	}
	return s, nil
}

func newShards(d *layout.Declaration, self cluster.Task, host Host, roster *layout.Roster) *Shards {
	return &Shards{steps: completion{d: d, self: self, host: host, roster: roster}, where: map[layout.Place]int{}}
}

// NewRelay adds what the workers of a host contribute to whole variables, as
// far as the parts that the host brings, and forwards the sums.
func NewRelay(d *layout.Declaration, self cluster.Task, host Host, roster *layout.Roster, relay Relay) *Shards {
	s := newShards(d, self, host, roster)
	s.relay = relay
	for _, p := range d.PiecesOf(-1) {
		sum := groupSum{accumulator: newAccumulator(d.Variable(p.Variable), p, roster.Plans[0])}
		s.add(&Shard{Piece: p, sums: []groupSum{sum}})
	}
	s.steps.start([]*group{newGroup(roster, 0, d, 0, d.First)}, nil, nil)
	return s
}

func (s *Shards) add(shard *Shard) {
	s.where[layout.Place{Variable: shard.Variable, Offset: shard.Offset}] = len(s.steps.list)
	s.steps.list = append(s.steps.list, shard)
}

// group makes the groups of contributors before the first step.
func (s *Shards) group() (all []*group) {
	for i := range s.steps.roster.Groups {
		all = append(all, newGroup(s.steps.roster, i, s.steps.d, len(s.steps.list), s.steps.d.FirstStepOf(i)))
	}
	return all
}

// Succeed returns the shards that the task holds from a step on. A piece that is in
// both declarations keeps its shard. The shards of all other pieces begin without
// rows.
func (s *Shards) Succeed(d *layout.Declaration, step uint64, host Host) (*Shards, error) {
	next := newShards(d, s.steps.self, host, s.steps.roster)
	for _, p := range d.PiecesOf(d.HolderIndex(s.steps.self)) {
		if i, known := s.where[layout.Place{Variable: p.Variable, Offset: p.Offset}]; known && s.steps.list[i].Piece == p {
			next.add(s.steps.list[i])
			continue
		}
		shard, err := newShard(d, s.steps.roster.Plans, p, nil)
		if err != nil {
			return nil, err
		}
		next.add(shard)
	}
	groups := next.group()
	for i, g := range groups {
		g.follow(s.steps.groups[i], step)
	}
	next.steps.start(groups, nil, nil)
	return next, nil
}

// Declaration returns the declaration whose pieces the shards are.
func (s *Shards) Declaration() *layout.Declaration { return s.steps.d }

// All returns the shards, in the order in which Arrive numbers them.
func (s *Shards) All() []*Shard { return s.steps.list }

// Find returns the number of the shard at a place.
func (s *Shards) Find(at layout.Place) (int, bool) {
	i, ok := s.where[at]
	return i, ok
}

// At returns the shard of a piece that is held here.
func (s *Shards) At(p layout.Piece) *Shard {
	return s.steps.list[s.where[layout.Place{Variable: p.Variable, Offset: p.Offset}]]
}

// Contributor returns the contributor of a rank; nil if the rank contributes nothing.
func (s *Shards) Contributor(rank int) *layout.Contributor { return s.steps.roster.Contributor(rank) }

// Events is how many counted events a member is told per step.
func (s *Shards) Events() int {
	if s.Closes() {
		return len(s.steps.list) + 1
	}
	return len(s.steps.list)
}

// Closes reports whether a step ends with a [Closed] event.
func (s *Shards) Closes() bool { return s.relay != nil || s.steps.d.Norms() }

// Audience returns the number of the copy of the values that a rank is sent; -1 means
// the values themselves.
func (s *Shards) Audience(rank int) int { return s.steps.audience(rank) }

// Begin records that a contributor begins a step, and completes the inputs of its parts
// that have no data.
func (s *Shards) Begin(rank int, step uint64, b Beginning) error {
	c := s.steps.roster.Contributor(rank)
	g := s.steps.groups[c.Group]
	present := 0
	for i, n := range b.Present {
		if most := s.steps.roster.Tree.Below(c.Parts[i]).Len(); n < 0 || n > most {
			return fmt.Errorf("%d virtual workers in a part of %d", n, most)
		}
		present += n
	}
	absent, err := g.enter(s.steps.roster.Of[rank], step, present, b.Rate)
	if err != nil {
		return err
	}
	for part, n := range b.Present {
		if n > 0 {
			continue
		}
		for i := range s.steps.list {
			s.arrive(g, i, c.First+part, false)
		}
	}
	for _, i := range absent {
		other := &s.steps.roster.Contributors[i]
		for part := range other.Parts {
			for shard := range s.steps.list {
				s.arrive(g, shard, other.First+part, false)
			}
		}
	}
	return nil
}

// Rate is the learning rate of the step that a group's members have begun.
func (s *Shards) Rate(group int) float64 {
	g := s.steps.groups[group]
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.rate
}

// Arrive records that an input of a shard has arrived, or that it has no data. If it was
// the last input of the sum, Arrive updates the shard and tells the host.
func (s *Shards) Arrive(group, shard, input int, present bool) {
	s.arrive(s.steps.groups[group], shard, input, present || s.relay != nil) // a host forwards even no rows: holders wait for them
}

func (s *Shards) arrive(g *group, shard, input int, present bool) {
	if s.relay != nil {
		if part, sum, done := s.steps.list[shard].sums[0].arrive(input, present); done && sum != nil {
			s.relay.Forward(s.steps.list[shard].Variable, part, sum)
		}
		return
	}
	if s.steps.list[shard].sums[g.index].complete(input, present) {
		s.steps.complete(g, shard)
	}
}

// Lack completes an input of a shard whose contributor is lost. The sum then lacks that
// many virtual workers.
func (s *Shards) Lack(group, shard, input, virtualWorkers int) {
	s.steps.groups[group].lack(shard, virtualWorkers)
	s.arrive(s.steps.groups[group], shard, input, false)
}

// Fetch sends a worker the values after so many steps, as soon as they exist.
func (s *Shards) Fetch(rank int, steps uint64) error {
	if s.steps.pace == nil {
		return errors.New("requests values that are sent without a request")
	}
	ranks, err := s.steps.pace.Wait(rank, steps)
	s.steps.release(ranks)
	return err
}

// Selection decides whose gradients count; nil if all gradients count, or if another
// holder decides.
func (s *Shards) Selection() policy.Selection { return s.selects }

// Scale is the answer of a group's leader to [SquaresWanted]: the norm of the gradients,
// and the factor by which holders multiply them.
func (s *Shards) Scale(rank int, norm, factor float64) error {
	g := s.steps.groups[s.steps.roster.Contributor(rank).Group]
	wrong := errors.New("sends a norm that was not requested")
	if s.steps.leader(g) != rank {
		return wrong
	}
	p, asked := g.normed(norm)
	if !asked {
		return wrong
	}
	if s.steps.d.Clips() {
		s.steps.clip(g, p, factor)
	} else {
		s.steps.close(g, p)
	}
	return nil
}

// Leave records that a worker sends nothing more.
func (s *Shards) Leave(rank int) {
	if s.steps.align != nil {
		s.steps.groups[s.steps.roster.Contributor(rank).Group].leave()
		s.steps.align.wake()
	}
	s.Stop(rank)
}

// Stop records that a worker takes no further step. It may leave later.
func (s *Shards) Stop(rank int) {
	if s.steps.pace != nil {
		s.steps.release(s.steps.pace.Leave(rank))
	}
	if s.selects != nil {
		for _, waiting := range s.selects.Leave(rank) {
			s.steps.host.Tell(waiting, Ended{})
		}
	}
}

// NoteSave sets Saved in the outcome of a step, because the chief saved before it.
func (s *Shards) NoteSave(step uint64) {
	if !s.steps.d.Sync.Cuts() {
		s.steps.groups[0].noteSave(step)
	}
}

// Steps returns, by group, how many steps are applied to all shards.
func (s *Shards) Steps() []uint64 {
	steps := make([]uint64, len(s.steps.groups))
	for i, g := range s.steps.groups {
		steps[i] = g.steps()
	}
	return steps
}

// Waiting returns how many members of the first group have not begun its next
// step, and how many updates a cut holds back.
func (s *Shards) Waiting() (missing, held int) {
	return s.steps.groups[0].missing(), s.steps.align.held()
}

// Restore returns all shards that a checkpoint has to fill.
func (s *Shards) Restore() (all []*Restoring) {
	for _, shard := range s.steps.list {
		if !shard.isLoss {
			all = append(all, &Restoring{d: s.steps.d, shard: shard})
		}
	}
	return all
}
