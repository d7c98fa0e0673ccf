package transition

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/plx-run/plx/trainer/aggregate"
	"github.com/plx-run/plx/trainer/cluster"
	"github.com/plx-run/plx/trainer/layout"
	"golang.org/x/sync/errgroup"
)

// Snapshot is a copy of all that one holder has. The receiver owns it; the
// Declaration must not be changed.
type Snapshot struct {
	Step        uint64              // steps that the chief's group has made
	Number      uint64              // of saves before: if workers are not in step there may be several of a step
	Declaration *layout.Declaration // with the pieces of the time
	Holder      cluster.Task
	Pieces      []aggregate.Kept
	Held        time.Duration // for which the training, or what lies after the cut, was held
}

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

// Save hands a copy of what a holder has to a checkpoint; to may be nil if there
// is nothing. s has Step, Number and Holder. If a checkpoint is a consistent cut
// the shards must have agreed on one. Save returns when the copy is made, or ctx
// has ended before that.
func Save(ctx context.Context, now *aggregate.Shards, s Snapshot, to Checkpoints) (err error) {
	hand := func(since time.Time) {
		now.NoteSave(s.Step)
		s.Declaration, s.Pieces = now.Declaration(), aggregate.Preserve(now.All())
		switch {
		case len(s.Pieces) == 0:
		case to == nil:
			err = errors.New("is to save its variables and was not configured to")
		default:
			s.Held = time.Since(since)
			to.Save(s)
		}
	}
	if a := now.Alignment(); a != nil {
		a.CopyCut(ctx.Done(), hand)
	} else {
		hand(time.Now())
	}
	return err
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
