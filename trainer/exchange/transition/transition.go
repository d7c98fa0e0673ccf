package transition

import (
	"context"
	"errors"

	"github.com/plx-run/plx/trainer/aggregate"
	"github.com/plx-run/plx/trainer/cluster"
	"github.com/plx-run/plx/trainer/peers"
)

// Transition is something that happens between two steps of the training on
// the shards that a task holds.
type Transition interface {
	// Run returns when it has happened here, with the shards that are in force
	// then: those that it was given, or others. It ends soon after ctx.
	Run(ctx context.Context, now *aggregate.Shards) (*aggregate.Shards, error)
}

// Config says who a holder is and where others are.
type Config struct {
	Peers   peers.Config
	Cluster cluster.Spec
	// Memory returns the bytes that the host has free; see FreeMemory.
	Memory func() (uint64, error)
}

// self is the holder.
func (c Config) self() cluster.Task { return c.Peers.Self }

// ErrEnded is the cause with which the context of a training ends in good order.
var ErrEnded = errors.New("training has ended")
