package aggregate

import (
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"
)

// Alignment is the state of one shard holder (a task that stores shards of
// variables) while a consistent cut is taken for a checkpoint. See Carbone et
// al. 2015, "Lightweight Asynchronous Snapshots for Distributed Dataflows".
//
// Before the chief (worker 0) saves a checkpoint, it calls Freeze on every
// holder. Freeze returns, for each group of workers, the number of steps that
// the holder has applied to at least one shard. For each group, the chief then
// sends all holders the highest number. These numbers are the cut (Agree).
//
// Meanwhile, a holder applies no step after the cut. It keeps the updates of
// such steps until it has applied all steps before the cut and has copied the
// values (CopyCut). A group that has sent a step to one holder sends that step
// to all holders. So a holder only waits for messages that are already on the
// way, never for a step that a worker still computes.
type Alignment struct {
	applying sync.RWMutex // held for reading while a gradient sum is applied, for writing while the fields below change
	limits   []uint64     // by group of workers: the first step that may not be applied yet; nil means that every step may be applied
	since    time.Time    // time at which Freeze set limits; the zero time means that Freeze was never called
	agreed   bool         // true if limits are the steps that the checkpoint contains (the cut), set by Agree; false if they are the steps that this holder had applied at Freeze
	copied   bool         // true if this holder has copied the values for the checkpoint
	holds    bool         // true if limits stay in force after the copy until GoOn is called, so that training pauses
	groups   []*group

	mu    sync.Mutex
	kept  []func()      // updates that the field limits does not allow yet; the method run tries them again
	moved chan struct{} // wakes CopyCut: this channel gets a token after an update was applied or a worker left
}

func newAlignment(groups []*group) *Alignment {
	return &Alignment{groups: groups, moved: make(chan struct{}, 1)}
}

// enter reports whether the caller may now apply the current step of group g.
// If it returns true, the caller must call exit after the update. If it
// returns false, enter has stored do, and the method run calls do later.
func (a *Alignment) enter(g *group, do func()) bool {
	if a == nil {
		return true
	}
	a.applying.RLock()
	if a.limits == nil || g.steps() < a.limits[g.index] {
		return true
	}
	a.mu.Lock()
	a.kept = append(a.kept, do)
	a.mu.Unlock()
	a.applying.RUnlock()
	return false
}

// exit ends the update that enter has allowed. It must follow each call of
// enter that returned true.
func (a *Alignment) exit() {
	if a != nil {
		a.applying.RUnlock()
		a.wake()
	}
}

// wake makes CopyCut check again whether all steps that the checkpoint
// contains are applied.
func (a *Alignment) wake() {
	select {
	case a.moved <- struct{}{}:
	default: // the channel moved already holds a token
	}
}

// Freeze returns, by group of workers, the number of steps that are applied to
// at least one shard. No later step is applied until the values for the
// checkpoint are copied.
func (a *Alignment) Freeze() ([]uint64, error) {
	a.applying.Lock()
	defer a.applying.Unlock()
	if a.limits != nil {
		return nil, errors.New("requests a consistent cut before the previous one is saved")
	}
	a.since, a.agreed, a.copied, a.holds = time.Now(), false, false, false
	for _, g := range a.groups {
		a.limits = append(a.limits, g.begunSteps())
	}
	return slices.Clone(a.limits), nil
}

// Agree sets the cut: the number of steps of each group that the checkpoint
// contains. A group begins a step only when all holders have all its earlier
// steps, so no holder lags by more than one step. If holds is true, updates
// stop once the values at the cut are copied, until GoOn is called.
func (a *Alignment) Agree(cut []uint64, holds bool) error {
	a.applying.Lock()
	defer a.applying.Unlock()
	if a.limits == nil || a.agreed || len(cut) != len(a.limits) {
		return fmt.Errorf("sends a consistent cut of %d groups that was not requested, or sends it twice: requested were %d groups", len(cut), len(a.limits))
	}
	for i, g := range a.groups {
		if cut[i] < a.limits[i] || cut[i] > g.steps()+1 {
			return fmt.Errorf("sends a consistent cut of group %d after %d steps: this task has begun to apply %d", i, cut[i], a.limits[i])
		}
	}
	a.limits, a.agreed, a.holds = slices.Clone(cut), true, holds
	return nil
}

// copy calls do, which copies the values for the checkpoint, if all steps
// before the cut are applied. It reports whether it called do. While do runs,
// no step is applied. The argument of do is the time at which Freeze was
// called.
func (a *Alignment) copy(do func(since time.Time)) bool {
	a.applying.Lock()
	defer a.applying.Unlock()
	for i, g := range a.groups {
		if g.steps() < a.limits[i] && !g.allLeft() {
			return false
		}
	}
	do(a.since)
	if a.copied = true; !a.holds {
		a.limits = nil
	}
	return true
}

// GoOn lets updates continue that stopped after the values of the checkpoint
// were copied. If GoOn is called before the copy, updates do not stop after
// it.
func (a *Alignment) GoOn() {
	a.applying.Lock()
	if a.holds = false; a.copied {
		a.limits = nil
	}
	a.applying.Unlock()
	a.run()
}

// held returns the number of updates that wait until the checkpoint has copied
// the values that they would change.
func (a *Alignment) held() int {
	if a == nil {
		return 0
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	return len(a.kept)
}

// run tries the updates in the field kept again. An update that is still not
// allowed stores itself in kept again.
func (a *Alignment) run() {
	a.mu.Lock()
	kept := a.kept
	a.kept = nil
	a.mu.Unlock()
	for _, do := range kept {
		do()
	}
}

// CopyCut applies all updates that the checkpoint contains and no later ones.
// It then calls do, which copies the values. The argument of do is the time at
// which Freeze was called. CopyCut returns after do, or when stop is closed.
func (a *Alignment) CopyCut(stop <-chan struct{}, do func(since time.Time)) {
	for a.run(); ; {
		if a.copy(do) {
			a.run()
			return
		}
		select {
		case <-a.moved:
		case <-stop:
			return
		}
	}
}

// Alignment returns the state with which this shard holder stops every worker
// group at the right step for a checkpoint. It is nil if all workers are in
// the same step.
func (s *Shards) Alignment() *Alignment { return s.steps.align }
