package owner

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/plx-run/plx/trainer/sparse"
	"golang.org/x/sync/errgroup"
)

// Restoring is a piece that is being restored.
type Restoring interface {
	// Put takes what is the piece's own of a part of its variable. The parts
	// of a checkpoint that overlap the piece must all be put, in any order,
	// also those of a sparse variable that have no row of it: they tell how
	// often it was updated. Where the checkpoint's parts differ in that, the
	// highest count holds. Put may be called by several goroutines, and copies.
	Put(k Kept) error
}

// restoreAtOnce bounds the pieces of an owner that are restored side by side.
const restoreAtOnce = 4

// restoring is a piece on its way.
type restoring struct {
	d     *Declaration
	piece Piece
	slot  lasting

	mu   sync.Mutex
	over bool // nothing is taken any more
	came []Range
}

func (r *restoring) Put(k Kept) error {
	if err := r.d.checkKept(k, r.piece.Variable); err != nil {
		return err
	}
	lo, hi := max(k.Offset, r.piece.Offset), min(k.Offset+k.Count, r.piece.Offset+r.piece.Count)
	if lo >= hi {
		return nil
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.over {
		return errors.New("restored too late")
	}
	r.slot.restore(k, lo, hi)
	r.came = append(r.came, Range{lo, hi})
	return nil
}

// checkKept says why k is no part of a variable.
func (d *Declaration) checkKept(k Kept, variable int) error {
	v := d.Variables[variable]
	switch {
	case k.Variable != variable:
		return fmt.Errorf("a part of variable %d, want one of %d, %q", k.Variable, variable, v.Name)
	case k.Offset < 0 || k.Count <= 0 || k.Count > v.units() || k.Offset > v.units()-k.Count:
		return fmt.Errorf("variable %q: no part of %d from %d on: there are %d", v.Name, k.Count, k.Offset, v.units())
	case k.Rows != nil && v.Sparse == nil:
		return fmt.Errorf("variable %q: rows of a dense variable", v.Name)
	}
	slots := v.settings(d.Optimizer).Slots()
	kept := sparse.Kept{Index: k.Rows, Values: k.Values, Slots: k.Slots}
	lo, hi, size := int64(k.Offset), int64(k.Offset+k.Count), v.unitSize()
	if v.Sparse == nil { // one row
		kept.Index, lo, hi, size = []int64{0}, 0, 1, k.Count*size
	}
	if err := kept.Check(lo, hi, size, slots); err != nil {
		return fmt.Errorf("variable %q, part of %d from %d on: %w", v.Name, k.Count, k.Offset, err)
	}
	return nil
}

// close takes nothing any more, and says what did not come.
func (r *restoring) close() error {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.over = true
	slices.SortFunc(r.came, func(a, b Range) int { return cmp.Compare(a.Lo, b.Lo) })
	at, end := r.piece.Offset, r.piece.Offset+r.piece.Count
	for _, c := range r.came {
		if c.Lo > at {
			return fmt.Errorf("[%d, %d) did not come", at, c.Lo)
		}
		at = max(at, c.Hi)
	}
	if at < end {
		return fmt.Errorf("[%d, %d) did not come", at, end)
	}
	return nil
}

// String names the piece.
func (r *restoring) String() string {
	return fmt.Sprintf("variable %q [%d, %d)", r.d.Variables[r.piece.Variable].Name, r.piece.Offset, r.piece.Offset+r.piece.Count)
}

// startRestore begins to restore all that the task owns; workers are let in
// when it is there. It needs s.mu, and an engine.
func (s *server) startRestore() error {
	e := s.engine
	for _, slot := range e.lasting() {
		s.restoring = append(s.restoring, &restoring{d: e.d, piece: slot.piece(), slot: slot})
	}
	if len(s.restoring) > 0 && s.restore == nil {
		return s.own(fmt.Errorf("is to restore its variables from checkpoint %q and was not configured to", e.d.Checkpoint))
	}
	if !s.closing {
		s.writers.Go(s.restoreAll)
	}
	return nil
}

// restoreAll restores every piece, and ends the training where that fails.
func (s *server) restoreAll() {
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	done := make(chan error, 1)
	go func() { done <- s.restorePieces(ctx) }()
	select {
	case err := <-done:
		if err != nil {
			s.end(s.own(err))
			return
		}
	case <-s.ended:
		for _, r := range s.restoring {
			r.close() // what is missing matters no more
		}
		cancel()
		select {
		case <-done:
		case <-time.After(farewell): // it was told, and what it puts is refused
		}
		return
	}
	s.mu.Lock()
	s.filled = true
	s.mu.Unlock()
	s.open()
}

func (s *server) restorePieces(ctx context.Context) error {
	group, ctx := errgroup.WithContext(ctx)
	group.SetLimit(restoreAtOnce)
	for _, r := range s.restoring {
		group.Go(func() error {
			if ctx.Err() != nil {
				return nil // another piece's error is the reason
			}
			err := s.restore(ctx, r.d, r.piece, r)
			if missing := r.close(); err == nil {
				err = missing
			}
			if err != nil {
				return fmt.Errorf("restore %s from checkpoint %q: %w", r, r.d.Checkpoint, err)
			}
			return nil
		})
	}
	return group.Wait()
}

// unrestored returns a piece that is not there yet, nil: all are.
func unrestored(all []*restoring) *restoring {
	for _, r := range all {
		r.mu.Lock()
		over := r.over
		r.mu.Unlock()
		if !over {
			return r
		}
	}
	return nil
}
