// Package transition is what a shard holder does between two steps: variables
// move to other holders, or a checkpoint is saved.
//
// Package server hears the workers, and runs a transition once they agree.
// [Repartition] brings rows to their new holders over connections of its own and
// returns the shards that take the place of the old ones. [Save] hands on a copy.
//
//	m := transition.NewRepartition(training, config, host, epoch)
//	next, err := m.Run(ctx, shards, declaration, step)
//
// [RestoreAll] fills shards from a checkpoint before the first step.
package transition

import (
	"errors"

	"github.com/plx-run/plx/trainer/cluster"
	"github.com/plx-run/plx/trainer/peers"
)

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
