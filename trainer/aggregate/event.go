package aggregate

import "github.com/plx-run/plx/trainer/layout"

// Host is the task that holds shards. Its methods never block.
type Host interface {
	// Memory is where the values of a dense piece are kept; nil: the shards
	// make it.
	Memory(p layout.Piece) []byte
	// Tell gives a member of a step, by rank, an event.
	Tell(rank int, e Event)
	// Fail ends the training.
	Fail(err error)
}

// Event is what a member of a step is told.
type Event interface {
	// Counted reports whether the event is one of those that make up a step:
	// Shards.Events of them.
	Counted() bool
}

// Updated says that a shard has its new value.
type Updated struct {
	Shard int
	End   Outcome
}

// Closed says that a step has ended apart from its shards: its norm is known,
// or the first worker of the host has heard of its end.
type Closed struct{ End Outcome }

// SquaresWanted asks the first member of a group to add up the squares of all
// holders and to answer with Shards.Scale.
type SquaresWanted struct{}

// Ended says that the member's step will not be made: too few workers are left.
type Ended struct{}

func (Updated) Counted() bool       { return true }
func (Closed) Counted() bool        { return true }
func (SquaresWanted) Counted() bool { return false }
func (Ended) Counted() bool         { return false }

// Outcome is what a holder knows of a step.
type Outcome struct {
	VirtualWorkers int     // that took part
	Norm           float64 // of the gradients, if it was asked for
	Updates        uint64  // steps that the training, or the member's group, has made
	Saved          bool    // the chief saved right before the step
}

// Beginning is what a contributor says first in a step.
type Beginning struct {
	Rate    float64 // learning rate
	Present []int   // by part: virtual workers with data
}
