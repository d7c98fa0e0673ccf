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

// Snapshot is a copy of all pieces of one holder. The receiver owns it, but
// must not change the Declaration.
type Snapshot struct {
	Step        uint64              // number of steps that the chief's group has made
	Number      uint64              // number of earlier saves; if workers are not in step, several saves may have the same Step
	Declaration *layout.Declaration // with the current pieces
	Holder      cluster.Task
	Pieces      []aggregate.Kept
	Held        time.Duration // how long the training, or the steps after the cut, waited for the copy
}

// Restoring is a shard that Checkpoints.Restore fills.
type Restoring interface {
	// Put copies the elements or rows of k that belong to the shard, see
	// aggregate.Restoring.
	Put(k aggregate.Kept) error
}

// Checkpoints saves and restores the shards of a holder.
type Checkpoints interface {
	// Save gets a copy of the shards whenever the chief saves. The training
	// waits for Save, so Save must not block.
	Save(Snapshot)
	// Restore fills the shard into with everything that Declaration.Checkpoint
	// has of piece p. RestoreAll calls it for several pieces in parallel. It
	// must return soon after ctx has ended.
	Restore(ctx context.Context, d *layout.Declaration, p layout.Piece, into Restoring) error
}

// Save copies a holder's shards, and passes the copy to Checkpoints. These may
// be nil if the holder has no pieces. The caller sets Step, Number and Holder
// of s. If a checkpoint is a consistent cut, the shards must have agreed on the
// cut. Save returns after it has made the copy, or after ctx has ended.
func Save(ctx context.Context, now *aggregate.Shards, s Snapshot, to Checkpoints) (err error) {
	if err := now.Refresh(); err != nil {
		return err
	}
	copyAll := func(since time.Time) {
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
		a.CopyCut(ctx.Done(), copyAll)
	} else {
		copyAll(time.Now())
	}
	return err
}

// atOnce bounds the number of pieces that a holder restores in parallel.
const atOnce = 4

// RestoreAll restores pieces. The error names a piece that could not be
// restored. RestoreAll returns soon after ctx has ended, even if from does not.
// The pieces then accept no more data.
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
		r.Close() // missing data no longer matters
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
