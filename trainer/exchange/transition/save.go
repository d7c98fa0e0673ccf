package transition

import (
	"context"
	"errors"
	"time"

	"github.com/plx-run/plx/trainer/aggregate"
	"github.com/plx-run/plx/trainer/cluster"
	"github.com/plx-run/plx/trainer/layout"
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

// Save hands a copy of what a holder has to Into. If a checkpoint needs a cut
// the shards must have agreed on one.
type Save struct {
	Step   uint64 // steps that the chief's group has made
	Number uint64 // of saves before
	Holder cluster.Task
	Into   Checkpoints // nil: a save is an error
}

// Run returns when the copy is made, or ctx has ended before that.
func (s Save) Run(ctx context.Context, now *aggregate.Shards) (*aggregate.Shards, error) {
	var err error
	save := func(since time.Time) { err = s.save(now, since) }
	if a := now.Alignment(); a != nil {
		a.CopyCut(ctx.Done(), save)
	} else {
		save(time.Now())
	}
	return now, err
}

// save hands on a copy, for which the training was held since some time.
func (s Save) save(now *aggregate.Shards, since time.Time) error {
	now.NoteSave(s.Step)
	pieces := aggregate.Preserve(now.All())
	if len(pieces) == 0 {
		return nil
	}
	if s.Into == nil {
		return errors.New("is to save its variables and was not configured to")
	}
	s.Into.Save(Snapshot{Step: s.Step, Number: s.Number, Declaration: now.Declaration(), Holder: s.Holder, Pieces: pieces, Held: time.Since(since)})
	return nil
}
