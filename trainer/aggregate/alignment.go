package aggregate

import (
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"
)

// Alignment is what one holder does for a consistent cut (Carbone et al. 2015,
// "Lightweight Asynchronous Snapshots for Distributed Dataflows"). Before the
// chief saves, it asks every holder how many steps of each group it has, if
// only in part (Freeze). It tells all holders the most of each, which is the
// cut (Agree). Meanwhile a holder applies nothing after the cut: what comes is
// kept until the holder has all that lies before the cut, and has copied that.
// A group that has brought a step to one holder brings it to all, so this takes
// no longer than what is on its way, and nobody waits for a step that is still
// being computed.
type Alignment struct {
	applying sync.RWMutex // held for reading while a sum is applied, for writing while the fields below change
	limits   []uint64     // by group: this step and later ones are not applied; nil means that every step is applied
	since    time.Time    // when Freeze set limits; the zero time means never
	agreed   bool         // Agree has set limits to the cut; false means that they are this holder's own counts
	copied   bool         // the holder has copied its values at the cut
	holds    bool         // limits stay in force after the copy, until GoOn
	groups   []*group

	mu    sync.Mutex
	kept  []func()      // updates that limits do not allow yet; run tries them again
	moved chan struct{} // holds a token after an update was applied or a member left, for CopyCut
}

func newAlignment(groups []*group) *Alignment {
	return &Alignment{groups: groups, moved: make(chan struct{}, 1)}
}

// enter reports whether the caller may now apply the current step of a group. If so, the
// caller must call exit afterwards. If not, enter keeps do, which run calls later.
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

// exit follows enter.
func (a *Alignment) exit() {
	if a != nil {
		a.applying.RUnlock()
		a.wake()
	}
}

// wake makes CopyCut check again whether all steps before the cut are applied.
func (a *Alignment) wake() {
	select {
	case a.moved <- struct{}{}:
	default: // a token is there already
	}
}

// Freeze returns, by group, the number of steps that at least one shard is updated by.
// From now on no later step is applied.
func (a *Alignment) Freeze() ([]uint64, error) {
	a.applying.Lock()
	defer a.applying.Unlock()
	if a.limits != nil {
		return nil, errors.New("asks for a cut before that of the last one is saved")
	}
	a.since, a.agreed, a.copied, a.holds = time.Now(), false, false, false
	for _, g := range a.groups {
		a.limits = append(a.limits, g.touched())
	}
	return slices.Clone(a.limits), nil
}

// Agree sets the cut: steps before it are applied. A group begins a step only after all
// holders have all its earlier steps, so no holder lags by more than one step.
func (a *Alignment) Agree(cut []uint64, holds bool) error {
	a.applying.Lock()
	defer a.applying.Unlock()
	if a.limits == nil || a.agreed || len(cut) != len(a.limits) {
		return fmt.Errorf("saves with a cut of %d groups, of %d that were asked for", len(cut), len(a.limits))
	}
	for i, g := range a.groups {
		if cut[i] < a.limits[i] || cut[i] > g.steps()+1 {
			return fmt.Errorf("saves group %d after %d steps: %d have begun to come in here", i, cut[i], a.limits[i])
		}
	}
	a.limits, a.agreed, a.holds = slices.Clone(cut), true, holds
	return nil
}

// copy calls do if all steps before the cut are applied, and reports whether it did.
// While do runs, no step is applied. since is the time of Freeze.
func (a *Alignment) copy(do func(since time.Time)) bool {
	a.applying.Lock()
	defer a.applying.Unlock()
	for i, g := range a.groups {
		if g.steps() < a.limits[i] && !g.gone() {
			return false
		}
	}
	do(a.since)
	if a.copied = true; !a.holds {
		a.limits = nil
	}
	return true
}

// GoOn ends the pause after the copy. If the copy is still to come, no pause follows it.
func (a *Alignment) GoOn() {
	a.applying.Lock()
	if a.holds = false; a.copied {
		a.limits = nil
	}
	a.applying.Unlock()
	a.run()
}

// held returns the number of updates that wait for the copy.
func (a *Alignment) held() int {
	if a == nil {
		return 0
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	return len(a.kept)
}

// run tries the kept updates again. Those that must still wait are kept again.
func (a *Alignment) run() {
	a.mu.Lock()
	kept := a.kept
	a.kept = nil
	a.mu.Unlock()
	for _, do := range kept {
		do()
	}
}

// CopyCut applies the steps before the cut, and then calls do with the time since which
// no later step was applied. It returns after do, or when stop is closed.
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

// Alignment returns the alignment; nil if a checkpoint needs no cut.
func (s *Shards) Alignment() *Alignment { return s.steps.align }
