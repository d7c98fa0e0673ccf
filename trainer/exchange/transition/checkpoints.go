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

// Snapshot is a copy of all pieces of one shard holder. The receiver may
// change everything except the Declaration.
type Snapshot struct {
	Step        uint64              // number of steps that the chief's group of workers has completed
	Number      uint64              // number of earlier saves, which tells apart several saves at the same Step
	Declaration *layout.Declaration // declaration with the current placement of pieces
	Holder      cluster.Task
	Pieces      []aggregate.SavedPiece
	Held        time.Duration // how long this copy delayed the training; in all modes except sync, how long it delayed the steps that are not in the checkpoint
}

// Restoring is a shard that Checkpoints.Restore fills with data from a
// checkpoint.
type Restoring interface {
	// Put copies those elements or rows of k that belong to the shard, and
	// ignores the others; see aggregate.Restoring.
	Put(k aggregate.SavedPiece) error
}

// Checkpoints saves and restores the shards of one shard holder.
type Checkpoints interface {
	// Save receives a copy of the shards each time the chief saves a
	// checkpoint. Save must not block, because the training waits for it.
	Save(Snapshot)
	// Restore passes all data of piece p to into.Put. The data comes from the
	// checkpoint d.Checkpoint. RestoreAll calls Restore for several pieces in
	// parallel. Restore must return soon after ctx ends.
	Restore(ctx context.Context, d *layout.Declaration, p layout.Piece, into Restoring) error
}

// Save copies the shards of a holder, and passes the copy to the parameter to,
// which may be nil if there are no shards. The caller sets Step, Number and
// Holder of s. If the mode needs a consistent cut (the number of steps of each
// group of workers), the caller has agreed on the cut with now.Alignment().
// Save returns after the copy is complete, or when ctx ends.
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
			err = errors.New("cannot save its variables: no checkpoint store is configured")
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

// atOnce is the largest number of pieces that a holder restores in parallel.
//
// TODO: measure other values on disks and networks of several kinds.
const atOnce = 4

// RestoreAll restores all given shards (pieces of variables) from a
// checkpoint. The error names a piece that could not be restored. When ctx
// ends, RestoreAll returns soon, even if from.Restore hangs. It has then
// closed the shards, which accept no more data.
func RestoreAll(ctx context.Context, d *layout.Declaration, all []*aggregate.Restoring, from Checkpoints) error {
	restoring, cancel := context.WithCancel(context.WithoutCancel(ctx)) // not canceled with ctx: when ctx ends, RestoreAll first closes all shards and then cancels their restores
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
		r.Close() // the error for missing data is ignored, because ctx has ended
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
		return nil // the restore of another piece has already failed, and its error is reported
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
