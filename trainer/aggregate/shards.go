// Package aggregate maintains the shards of variables that a task holds: it
// adds up the gradients of a step as the synchronization mode demands, applies
// the optimiser, and stores the values. It uses no network and no files.
//
// [Shards] are all pieces of variables that one task holds. A contributor is a
// worker, or the first worker of a host if that worker adds the gradients of
// its host. Each contributor begins a step and sends sums of gradients. When
// all sums of the step have arrived for a [Shard], the optimiser updates the
// shard. Each contributor whose gradients are in the step then gets an
// [Event]:
//
//	shards, err := aggregate.New(&declaration, self, host) // host.Tell gets the events
//	err = shards.Begin(rank, step, aggregate.Beginning{Rate: 0.1, Present: present})
//	present, err := shard.Receive(group, input, length, read)
//	shards.Arrive(group, i, input, present) // after the last input, host.Tell gets Updated
//
// Gradients are added along the reduction tree of package layout, which fixes
// the order of additions. So a sum has the same bits in whatever order the
// gradients arrive. [WorkerSums] adds the gradients of the virtual workers of one
// worker along the same tree. [Outbox] collects sums until a bucket (variables
// that are sent together) is full.
//
// # Alignment
//
// If workers do not all take the same steps together, a checkpoint needs a
// consistent cut (for each group of workers, the steps that it contains). An
// [Alignment] applies no step after the cut until the values at the cut are
// copied.
package aggregate

import (
	"errors"
	"fmt"

	"github.com/plx-run/plx/trainer/cluster"
	"github.com/plx-run/plx/trainer/layout"
	"github.com/plx-run/plx/trainer/policy"
)

// Shards are all pieces of variables that a task holds. Any goroutine may call
// the methods, but for each worker (rank) only one at a time.
type Shards struct {
	steps   completion
	where   map[layout.Place]int // by variable and offset of a piece: index of its shard in steps.list
	selects policy.Selection     // decides which workers' gradients are used (backup workers); set only on the first shard holder; nil if all gradients are used
	device  DeviceMemory         // stores the values, for example on a GPU; nil if the shards store them
	relay   Relay                // gets the gradient sums of a host if this task adds them for its host; nil if the sums update this task's own shards
}

// Relay forwards the gradient sums of a host to the shard holders. The host's
// first worker adds the gradients of its host and stores no values itself.
// Forward may be called for several variables at the same time.
type Relay interface {
	Forward(variable, part int, s Sum)
}

// New returns the shards of task self, with all values zero.
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
	if d.Sync.UsesCuts() {
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

// NewRelay returns Shards that add the gradients of one host's workers and
// store no values. They add as far as the reduction tree allows without
// gradients of other hosts, and pass the sums to relay.
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

// group returns the groups of workers in their state before the first step.
func (s *Shards) group() (all []*group) {
	for i := range s.steps.roster.Groups {
		all = append(all, newGroup(s.steps.roster, i, s.steps.d, len(s.steps.list), s.steps.d.FirstStepOf(i)))
	}
	return all
}

// Succeed returns the shards that the task holds from a step on, after pieces
// of variables moved between holders. A piece keeps its shard if it is in the
// old and in the new declaration. The shards of all other pieces are empty
// until their rows arrive from the previous holders.
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

// Declaration returns the description of the variables, pieces and holders for
// which the shards were made.
func (s *Shards) Declaration() *layout.Declaration { return s.steps.d }

// All returns the shards. The index of a shard in the slice is its number, the
// parameter shard of Arrive.
func (s *Shards) All() []*Shard { return s.steps.list }

// Find returns the index of the shard that begins at the given variable and
// offset.
func (s *Shards) Find(at layout.Place) (int, bool) {
	i, ok := s.where[at]
	return i, ok
}

// At returns the shard of piece p. This task must hold p.
func (s *Shards) At(p layout.Piece) *Shard {
	return s.steps.list[s.where[layout.Place{Variable: p.Variable, Offset: p.Offset}]]
}

// Contributor returns what the worker of a rank contributes to gradient sums.
// It returns nil if the worker contributes nothing, because another worker of
// its host adds its gradients.
func (s *Shards) Contributor(rank int) *layout.Contributor { return s.steps.roster.Contributor(rank) }

// Events returns the number of events about shards, such as [Closed], that a
// worker gets in each step. It counts only events whose method Counted returns
// true.
func (s *Shards) Events() int {
	if s.Closes() {
		return len(s.steps.list) + 1
	}
	return len(s.steps.list)
}

// Closes reports whether each step ends with a [Closed] event.
func (s *Shards) Closes() bool { return s.relay != nil || s.steps.d.Norms() }

// ReaderGroup returns which copy of a shard's values the worker with the given
// rank reads, as an index for [Shard.Value]. -1 means that the worker reads no
// copy but the shard's own values.
func (s *Shards) ReaderGroup(rank int) int { return s.steps.readerGroup(rank) }

// Begin records that the worker of a rank begins a step. It completes those
// inputs of the gradient sums for which the worker has no data.
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

// Rate returns the learning rate of the last step that workers of a group have
// begun.
func (s *Shards) Rate(group int) float64 {
	g := s.steps.groups[group]
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.rate
}

// Arrive records that an input of a shard's gradient sum has arrived, or that
// the input has no data. After the last input of the sum, Arrive updates the
// shard and sends the events of the step.
func (s *Shards) Arrive(group, shard, input int, present bool) {
	// A host forwards even a sum without rows, because the shard holders wait
	// for a sum of each host.
	s.arrive(s.steps.groups[group], shard, input, present || s.relay != nil)
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

// Lack completes an input of a shard's gradient sum whose worker is lost. The
// sum then lacks the gradients of that worker's virtual workers (parts of the
// batch).
func (s *Shards) Lack(group, shard, input, virtualWorkers int) {
	s.steps.groups[group].lack(shard, virtualWorkers)
	s.arrive(s.steps.groups[group], shard, input, false)
}

// Fetch records that the worker with the given rank requests the values after
// the given number of steps. They are sent when these steps are applied and
// the mode lets the worker continue.
func (s *Shards) Fetch(rank int, steps uint64) error {
	if s.steps.pace == nil {
		return errors.New("requests values that are sent without a request")
	}
	ranks, err := s.steps.pace.Wait(rank, steps)
	s.steps.release(ranks)
	return err
}

// Selection returns the policy that decides whose gradients a step uses, if it
// uses only those of the first workers. nil means that all gradients are used,
// or that another shard holder decides.
func (s *Shards) Selection() policy.Selection { return s.selects }

// Scale handles the reply to [SquaresWanted], which the worker with this rank
// sends for its group: the global gradient norm, and the factor by which
// holders multiply the gradients if they are clipped.
func (s *Shards) Scale(rank int, norm, factor float64) error {
	g := s.steps.groups[s.steps.roster.Contributor(rank).Group]
	wrong := errors.New("sends a norm that was not requested")
	if s.steps.leader(g) != rank {
		return wrong
	}
	p, asked := g.recordNorm(norm)
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

// Leave records that the worker with the given rank will send no more
// gradients.
func (s *Shards) Leave(rank int) {
	if s.steps.align != nil {
		s.steps.groups[s.steps.roster.Contributor(rank).Group].leave()
		s.steps.align.wake()
	}
	s.Stop(rank)
}

// Stop records that the worker of a rank takes no further step. Leave may
// follow later.
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

// NoteSave records that the chief (worker 0) saved a checkpoint right before a
// step. The step's Outcome then has Saved set.
func (s *Shards) NoteSave(step uint64) {
	if !s.steps.d.Sync.UsesCuts() {
		s.steps.groups[0].noteSave(step)
	}
}

// Steps returns, by group of workers, the number of steps that are applied to
// all shards.
func (s *Shards) Steps() []uint64 {
	steps := make([]uint64, len(s.steps.groups))
	for i, g := range s.steps.groups {
		steps[i] = g.steps()
	}
	return steps
}

// Waiting returns missing, the number of workers of the first group that have
// not begun the next step. held is the number of updates that are delayed
// until a checkpoint has copied the values before them.
func (s *Shards) Waiting() (missing, held int) {
	return s.steps.groups[0].missing(), s.steps.align.held()
}

// Restore returns all shards that a checkpoint must fill: all shards except
// that of the loss.
func (s *Shards) Restore() (all []*Restoring) {
	for _, shard := range s.steps.list {
		if !shard.isLoss {
			all = append(all, &Restoring{d: s.steps.d, shard: shard})
		}
	}
	return all
}
