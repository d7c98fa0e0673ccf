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

// Saves makes the shard holders save checkpoints. Only the chief may call its
// methods, between two steps.
type Saves struct {
	holders  *holders
	progress *progress
	last     uint64   // 1 + step before which the last save was; 0 means never
	number   uint64   // number of saves so far
	cut      []uint64 // agreed and not yet saved; nil: none
	holds    bool     // the other workers wait after the cut, see Holding
}

// CutKind says when the other workers continue after a cut.
type CutKind uint32

// The kinds of cuts.
const (
	Passing CutKind = iota // as soon as the cut is saved
	Holding                // when the chief begins its next step, or concludes
)

// Cut asks all holders for a consistent cut. The chief must call Save soon
// after. Cut returns how many steps of each group of workers every copy will
// contain; no copy will contain later steps. The first group is that of the
// chief. Holders keep gradients of later steps until the cut is saved. If
// workers are in step, Cut does nothing and returns nil.
func (s *Saves) Cut(ctx context.Context, kind CutKind) ([]uint64, error) {
	h := s.holders
	if err := s.savable(); err != nil || !h.d.Sync.Cuts() {
		return nil, err
	}
	if s.cut != nil {
		return nil, fmt.Errorf("asked for two cuts before step %d", s.progress.step)
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

// Save makes every holder that has pieces give a copy of them to its
// Checkpoints. The chief calls it at most once before each step, and may call
// it after the last one. It does not wait for the copies on other tasks.
//
// If workers are in step, every holder makes its copy before it reads the
// chief's next frame. So all copies are of the same moment, and the [Outcome]
// of the next step reports the save to every worker. In other modes the copies
// are of the cut that [Saves.Cut] returned, and no worker is told.
func (s *Saves) Save() error {
	h, step, inStep := s.holders, s.progress.step, !s.holders.d.Sync.Cuts()
	if err := s.savable(); err != nil {
		return err
	}
	switch {
	case inStep && s.last == step+1:
		return fmt.Errorf("saved twice before step %d", step)
	case !inStep && s.cut == nil:
		return fmt.Errorf("saved before step %d and asked for no cut", step)
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

// Number returns the number of calls of Save that sent a request.
func (s *Saves) Number() uint64 { return s.number }

// Conclude tells the holders that the chief takes no further step, so that no
// worker waits for the chief. It is for modes in which workers are not in step.
// It returns true after all other workers have left. If that takes longer than
// most, it returns false. The chief may then call Cut and Save, and Conclude
// again.
func (s *Saves) Conclude(ctx context.Context, most time.Duration) (alone bool, err error) {
	h := s.holders
	if err := s.savable(); err != nil {
		return false, err
	}
	if !h.d.Sync.Cuts() {
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

// savable returns why the chief cannot save now; nil: it can.
func (s *Saves) savable() error {
	if err := s.holders.working(); err != nil {
		return err
	}
	switch self := s.holders.config.Peers.Self; {
	case !self.IsChief():
		return fmt.Errorf("%s saves, which is for %s to do", self, cluster.Chief)
	case s.holders.config.Checkpoints == nil:
		return fmt.Errorf("%s saves and was not configured to: nobody would take the copies", self)
	case s.progress.within:
		return fmt.Errorf("saved between two steps, not in step %d", s.progress.step)
	}
	return nil
}
