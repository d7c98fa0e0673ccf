// Package transition implements what a shard holder does between two steps: it
// moves variables to other holders, and saves checkpoints.
//
// Package server receives the workers' requests, and starts the operation
// after all workers have requested it. [Repartition] sends rows to their new
// holders over separate connections, and returns the shards that replace the
// old ones. [Save] copies the shards and passes the copy to the checkpoint
// store.
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

// Config identifies a shard holder, and has the addresses of the other
// holders.
type Config struct {
	Peers   peers.Config
	Cluster cluster.Spec
	// Memory returns the free memory of the host in bytes; see FreeMemory.
	Memory func() (uint64, error)
}

// self returns the task in which this shard holder runs.
func (c Config) self() cluster.Task { return c.Peers.Self }

// ErrEnded is the cause of a context that is canceled after a successful
// training.
var ErrEnded = errors.New("training has ended")
