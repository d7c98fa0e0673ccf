package transition

import (
	"context"
	"fmt"
	"time"

	"github.com/plx-run/plx/trainer/aggregate"
	"github.com/plx-run/plx/trainer/layout"
	"golang.org/x/sync/errgroup"
)

// Restoring is a shard that is being filled.
type Restoring interface {
	// Put takes what is the shard's own of a part of its variable, see
	// aggregate.Restoring.
	Put(k aggregate.Kept) error
}

// Checkpoints is where a holder's shards are saved to and restored from.
type Checkpoints interface {
	// Save gets a copy of the shards whenever the chief saves. The training
	// waits for it, so it must not block.
	Save(Snapshot)
	// Restore puts what Declaration.Checkpoint has of a piece. It is called for
	// several pieces side by side, and must return soon after ctx has ended.
	Restore(ctx context.Context, d *layout.Declaration, p layout.Piece, into Restoring) error
}

// atOnce bounds the pieces of a holder that are restored side by side.
const atOnce = 4

// RestoreAll restores pieces, and says what the checkpoint does not have. It
// returns soon after ctx has ended, even if from does not: then it takes nothing
// more.
func RestoreAll(ctx context.Context, d *layout.Declaration, all []*aggregate.Restoring, from Checkpoints) error {
	restoring, cancel := context.WithCancel(context.WithoutCancel(ctx)) // ends after the pieces are closed
	defer cancel()
	group, restoring := errgroup.WithContext(restoring)
	group.SetLimit(atOnce)
	done := make(chan error, 1)
	go func() {
		for _, r := range all {
			group.Go(func() error { return restore(restoring, d, r, from) })
		}
		done <- group.Wait()
	}()
	select {
	case err := <-done:
		return err
	case <-ctx.Done():
	}
	for _, r := range all {
		r.Close() // what is missing matters no more
	}
	cancel()
	select {
	case <-done:
	case <-time.After(farewell):
	}
	return context.Cause(ctx)
}

func restore(ctx context.Context, d *layout.Declaration, r *aggregate.Restoring, from Checkpoints) error {
	if ctx.Err() != nil {
		return nil // another piece's error is the reason
	}
	err := from.Restore(ctx, d, r.Piece(), r)
	if missing := r.Close(); err == nil {
		err = missing
	}
	if err != nil {
		return fmt.Errorf("restore %s from checkpoint %q: %w", r, d.Checkpoint, err)
	}
	return nil
}
