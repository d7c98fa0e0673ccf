package aggregate

import (
	"errors"
	"fmt"

	"github.com/plx-run/plx/trainer/optimizer"
	"github.com/plx-run/plx/trainer/wire"
)

// DeviceMemory stores the values of shards outside of the host's memory, for example
// on a GPU. A DeviceMemory also has the gradients. When a worker contributes them, the
// DeviceMemory has already updated the values, and package aggregate does not read the
// gradients. The values in the host's memory are out of date until Fetch
// copies the new ones.
type DeviceMemory interface {
	// Updated returns the step number, learning rate and scale with which the
	// DeviceMemory has updated a variable. If gradients are clipped, the scale has no
	// meaning.
	Updated(variable int) optimizer.Step
	// Squares appends the sums of squares of the variable's gradient: one
	// number for each block of layout.BlockElements elements.
	Squares(variable int, into []float64) []float64
	// Fetch copies all values, and the optimiser state that Shard.Slots
	// returns, to the host's memory.
	Fetch() error
}

// KeepOnDevice makes h the storage of all variables. The task must hold every
// variable whole. The training must have a single virtual worker, because
// gradients of several virtual workers would have to be added in the host's
// memory.
func (s *Shards) KeepOnDevice(h DeviceMemory) error {
	d := s.steps.d
	if d.VirtualWorkers != 1 || !d.Sync.InStep() {
		return errors.New("variables cannot be kept on the device: gradients are added in host memory")
	}
	for _, shard := range s.steps.list {
		if shard.isLoss {
			continue
		}
		if v := d.Variable(shard.Variable); v.Sparse != nil || shard.Count != v.NumElements() {
			return fmt.Errorf("variable %q cannot be kept on the device: it is sparse, or cut into pieces", v.Name)
		}
		shard.keepOnDevice(h)
	}
	s.device = h
	return nil
}

// Refresh copies the current values to the host's memory, if they are stored
// elsewhere.
func (s *Shards) Refresh() error {
	if s.device == nil {
		return nil
	}
	return s.device.Fetch()
}

func (s *Shard) keepOnDevice(h DeviceMemory) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.device, s.state = h, deviceState{s.state, s.Variable, h}
}

// Slots returns the optimiser state of a dense shard in the host's memory: one
// slice for each number that the optimiser keeps per element.
func (s *Shard) Slots() [][]byte {
	s.mu.RLock()
	defer s.mu.RUnlock()
	here := s.state
	if e, has := here.(deviceState); has {
		here = e.state
	}
	return here.(slotted).slots()
}

// slotted is a shard state whose optimiser state consists of contiguous
// slices.
type slotted interface{ slots() [][]byte }

func (s *elementsState[T]) slots() (all [][]byte) {
	for _, slot := range s.rule.Slots() {
		all = append(all, wire.Bytes(slot))
	}
	return all
}

// deviceState is the state of a shard whose values are stored in a DeviceMemory, such as
// a GPU. The embedded state is the copy in the host's memory.
type deviceState struct {
	state
	variable int
	home     DeviceMemory
}

// apply checks that the DeviceMemory has already made the update s.
func (e deviceState) apply(t total, s optimizer.Step) error {
	if t == nil {
		return nil
	}
	if did := e.home.Updated(e.variable); did.Number != s.Number || did.Rate != s.Rate {
		return fmt.Errorf("update %d at learning rate %v: the device made update %d at learning rate %v instead", s.Number, s.Rate, did.Number, did.Rate)
	}
	return nil
}
