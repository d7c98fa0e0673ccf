// Package transition implements the operations of a shard holder between two
// steps: it moves variables to other holders, and saves checkpoints.
//
// Package server receives the requests of the workers, and runs a transition
// after all workers have agreed on it. [Repartition] sends rows to their new
// holders over its own connections, and returns the shards that replace the old
// ones. [Save] passes on a copy of the shards.
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

// Config identifies a holder and says where the other holders are.
type Config struct {
	Peers   peers.Config
	Cluster cluster.Spec
	// Memory returns the free memory of the host in bytes; see FreeMemory.
	Memory func() (uint64, error)
}

// self returns the task of the holder.
func (c Config) self() cluster.Task { return c.Peers.Self }

// ErrEnded is the cause of a context that ends because its training has ended
// in good order.
var ErrEnded = errors.New("training has ended")
