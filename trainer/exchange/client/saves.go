package client

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/plx-run/plx/trainer/cluster"
	"github.com/plx-run/plx/trainer/exchange/message"
	"github.com/plx-run/plx/trainer/wire"
)

// Saves makes the shard holders save checkpoints. Only the chief (the worker
// of rank 0) may call its methods, and only between two steps.
type Saves struct {
	holders  *holders
	progress *progress
	last     uint64   // number of the step before which the last save was, plus 1; 0 means that nothing was saved
	number   uint64   // number of saves so far
	cut      []uint64 // consistent cut that the next Save will save: number of steps of each group of workers; nil if there is none
	holds    bool     // true if the other workers wait after the cut until the chief continues, see Holding
}

// CutKind says when the other workers may take steps after a consistent cut. A
// cut is the number of steps of each group of workers that a checkpoint
// contains.
type CutKind uint32

// The kinds of cuts.
const (
	Passing CutKind = iota // workers continue as soon as the cut is saved
	Holding                // workers wait after the cut, until the chief (worker 0) begins its next step or calls Conclude
)

// Cut agrees with all shard holders on a consistent cut: the number of steps
// of each group of workers that the next checkpoint contains. It returns these
// numbers, that of the chief's group first. Holders apply gradients of later
// steps only after the cut is saved, so the chief must call Save soon. In mode
// sync, Cut does nothing and returns nil.
func (s *Saves) Cut(ctx context.Context, kind CutKind) ([]uint64, error) {
	h := s.holders
	if err := s.savable(); err != nil || !h.d.Sync.UsesCuts() {
		return nil, err
	}
	if s.cut != nil {
		return nil, fmt.Errorf("requested two cuts before step %d", s.progress.step)
	}
	if err := h.tell(wire.Frame{Header: wire.Header{Kind: wire.Cut, Step: s.progress.step, Part: uint32(kind)}}); err != nil {
		return nil, err
	}
	cut := make([]uint64, len(h.d.Groups()))
	for l := range h.holding {
		has, err := await(ctx, h, l.replies.cuts)
		if err != nil {
			return nil, err
		}
		for g := range cut {
			cut[g] = max(cut[g], has[g])
		}
	}
	s.cut, s.holds = cut, kind == Holding
	return slices.Clone(cut), nil
}

// Save makes every shard holder pass a copy of its pieces to its Checkpoints
// (the part of the holder that writes checkpoints). The chief calls Save at
// most once before each step, and may call it after its last step. Save does
// not wait until other tasks have made their copies.
//
// In mode sync, every holder copies its pieces before it reads the chief's
// message for the next step. So all copies have the same number of steps, and
// the [Outcome] of the next step reports the save to all workers. In other
// modes, the copies are those of the cut that [Saves.Cut] returned, and other
// workers get no report.
func (s *Saves) Save() error {
	h, step, inStep := s.holders, s.progress.step, !s.holders.d.Sync.UsesCuts()
	if err := s.savable(); err != nil {
		return err
	}
	switch {
	case inStep && s.last == step+1:
		return fmt.Errorf("saved twice before step %d", step)
	case !inStep && s.cut == nil:
		return fmt.Errorf("saved before step %d without requesting a cut first", step)
	}
	frame := wire.Frame{Header: wire.Header{Kind: wire.Save, Step: step, Offset: s.number}, Payload: message.EncodeCut(s.cut)}
	if s.holds {
		frame.Part = 1
	}
	number := s.number
	s.last, s.cut, s.holds = step+1, nil, false
	s.number++
	if err := h.tell(frame); err != nil {
		return err
	}
	if h.local != nil && !h.local.idle() {
		if err := h.local.server.Save(step, number); err != nil {
			h.fail(err)
		}
	}
	return h.working()
}

// Number returns the number of saves that this client has requested.
func (s *Saves) Number() uint64 { return s.number }

// Conclude reports to the shard holders that the chief takes no further step,
// so that no worker waits for the chief. It returns true after all other
// workers have left the training. The parameter most is the longest time to
// wait. After that time Conclude returns false; the chief may then call Cut,
// Save and again Conclude. Conclude fails in mode sync, in which all workers
// end after the same step.
func (s *Saves) Conclude(ctx context.Context, most time.Duration) (alone bool, err error) {
	h := s.holders
	if err := s.savable(); err != nil {
		return false, err
	}
	if !h.d.Sync.UsesCuts() {
		return false, fmt.Errorf("step %d is the last one of all workers", s.progress.step)
	}
	if err := h.tell(wire.Frame{Header: wire.Header{Kind: wire.Alone}}); err != nil {
		return false, err
	}
	timer := time.NewTimer(most)
	defer timer.Stop()
	for l := range h.holding {
		select {
		case <-timer.C:
			return false, nil
		case <-l.replies.alone:
			continue
		case <-h.ctx.Done():
		case <-ctx.Done():
			h.fail(context.Cause(ctx))
		}
		return false, h.hangUp()
	}
	return true, nil
}

// savable returns an error if this worker cannot save now.
func (s *Saves) savable() error {
	if err := s.holders.working(); err != nil {
		return err
	}
	switch self := s.holders.config.Peers.Self; {
	case !self.IsChief():
		return fmt.Errorf("%s cannot save: only %s can", self, cluster.Chief)
	case s.holders.config.Checkpoints == nil:
		return fmt.Errorf("%s cannot save: no checkpoint store is configured", self)
	case s.progress.within:
		return fmt.Errorf("saved between two steps, not in step %d", s.progress.step)
	}
	return nil
}
