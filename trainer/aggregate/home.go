package aggregate

import (
	"errors"
	"fmt"

	"github.com/plx-run/plx/trainer/optimizer"
	"github.com/plx-run/plx/trainer/wire"
)

// Home keeps the values of shards elsewhere than in the memory of the host, for
// example on a GPU. It has the gradients too, and has updated the values when they
// are contributed here: nobody reads what is brought. The memory of the host is
// older, until Fetch writes it.
type Home interface {
	// Updated returns with which numbers the home has updated a variable in the
	// step. If gradients are clipped, the scale may be any.
	Updated(variable int) optimizer.Step
	// Squares appends the sums of squares of the variable's gradient, by block of
	// layout.BlockElements.
	Squares(variable int, into []float64) []float64
	// Fetch writes all values, and Shard.Slots, to the memory of the host.
	Fetch() error
}

// KeepIn makes h the home of all variables. The task must hold every one of them
// whole, for one virtual worker: gradients of several are added here.
func (s *Shards) KeepIn(h Home) error {
	d := s.steps.d
	if d.VirtualWorkers != 1 || !d.Sync.InStep() {
		return errors.New("values cannot be kept elsewhere: gradients are added here")
	}
	for _, shard := range s.steps.list {
		if shard.isLoss {
			continue
		}
		if v := d.Variable(shard.Variable); v.Sparse != nil || shard.Count != v.NumElements() {
			return fmt.Errorf("variable %q cannot be kept elsewhere: it is sparse, or cut", v.Name)
		}
		shard.keepIn(h)
	}
	s.home = h
	return nil
}

// Refresh brings the memory of the host up to date.
func (s *Shards) Refresh() error {
	if s.home == nil {
		return nil
	}
	return s.home.Fetch()
}

func (s *Shard) keepIn(h Home) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.home, s.state = h, elsewhere{s.state, s.Variable, h}
}

// Slots is the host's memory of what the optimiser keeps for a dense shard, by slot.
func (s *Shard) Slots() [][]byte {
	s.mu.RLock()
	defer s.mu.RUnlock()
	here := s.state
	if e, has := here.(elsewhere); has {
		here = e.state
	}
	return here.(slotted).slots()
}

// slotted is a state whose numbers lie one after the other.
type slotted interface{ slots() [][]byte }

func (s *elementsState[T]) slots() (all [][]byte) {
	for _, slot := range s.rule.Slots() {
		all = append(all, wire.Bytes(slot))
	}
	return all
}

// elsewhere is the state of a variable that has a home. The memory of the host is the
// state that it had before.
type elsewhere struct {
	state
	variable int
	home     Home
}

// apply checks that the home has done the update.
func (e elsewhere) apply(t total, s optimizer.Step) error {
	if t == nil {
		return nil
	}
	if did := e.home.Updated(e.variable); did.Number != s.Number || did.Rate != s.Rate {
		return fmt.Errorf("update %d at rate %v was made elsewhere as update %d at rate %v", s.Number, s.Rate, did.Number, did.Rate)
	}
	return nil
}
