package owner

import (
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"
)

// barrier is what lies behind a cut on one owner. Where workers are not in step
// the chief, before it saves, asks every owner how many steps of each group it
// has, if only in part (freeze), and tells all owners the most of each, which
// is the cut (agree). Meanwhile an owner applies nothing behind the cut: what
// comes is kept until it has all that lies before the cut, and has copied that.
// A group that has brought a step to one owner brings it to all, so that takes
// no longer than what is on its way.
//
// Carbone et al. 2015, "Lightweight Asynchronous Snapshots for Distributed
// Dataflows", align snapshots likewise. Here owners say where the barrier lies,
// so that nobody waits for a step that is still being computed.
type barrier struct {
	applying sync.RWMutex // held for reading by whoever applies
	limits   []uint64     // by group: from this step on nothing is applied; nil: everything is
	since    time.Time    // when that began
	agreed   bool         // limits are the cut
	copied   bool         // and the copy was made
	holds    bool         // even then nothing is applied, until the chief goes on
	groups   []*group

	mu    sync.Mutex
	kept  []func()      // what is to be done once it may be
	moved chan struct{} // has a token: something was applied, or somebody left
}

func newBarrier(groups []*group) *barrier {
	return &barrier{groups: groups, moved: make(chan struct{}, 1)}
}

// enter lets the caller apply the step that a group is in, until it calls exit;
// or keeps do for later.
func (b *barrier) enter(g *group, do func()) bool {
	if b == nil {
		return true
	}
	b.applying.RLock()
	if b.limits == nil || g.steps() < b.limits[g.index] {
		return true
	}
	b.mu.Lock()
	b.kept = append(b.kept, do)
	b.mu.Unlock()
	b.applying.RUnlock()
	return false
}

// exit follows enter.
func (b *barrier) exit() {
	if b != nil {
		b.applying.RUnlock()
		b.wake()
	}
}

// wake has whoever waits for the cut look again.
func (b *barrier) wake() {
	select {
	case b.moved <- struct{}{}:
	default: // it is about to
	}
}

// freeze returns how many steps of each group are in, if only in part, and lets
// none in behind them.
func (b *barrier) freeze() ([]uint64, error) {
	b.applying.Lock()
	defer b.applying.Unlock()
	if b.limits != nil {
		return nil, errors.New("asks for a cut before that of the last one is saved")
	}
	b.since, b.agreed, b.copied, b.holds = time.Now(), false, false, false
	for _, g := range b.groups {
		b.limits = append(b.limits, g.touched())
	}
	return slices.Clone(b.limits), nil
}

// agree takes the cut: the steps before it are let in. A group does not begin a
// step before it has all steps before that one everywhere, so no owner can lag by
// more than one.
func (b *barrier) agree(cut []uint64, holds bool) error {
	b.applying.Lock()
	defer b.applying.Unlock()
	if b.limits == nil || b.agreed || len(cut) != len(b.limits) {
		return fmt.Errorf("saves with a cut of %d groups, of %d that were asked for", len(cut), len(b.limits))
	}
	for i, g := range b.groups {
		if cut[i] < b.limits[i] || cut[i] > g.steps()+1 {
			return fmt.Errorf("saves group %d behind %d steps: %d have begun to come in here", i, cut[i], b.limits[i])
		}
	}
	b.limits, b.agreed, b.holds = slices.Clone(cut), true, holds
	return nil
}

// copy calls do, with the time since which nothing was applied behind the
// barrier, and returns true, where all that lies before it is there. Meanwhile
// nothing is applied at all.
func (b *barrier) copy(do func(since time.Time)) bool {
	b.applying.Lock()
	defer b.applying.Unlock()
	for i, g := range b.groups {
		if g.steps() < b.limits[i] && !g.gone() {
			return false
		}
	}
	do(b.since)
	if b.copied = true; !b.holds {
		b.limits = nil
	}
	return true
}

// goOn ends the pause behind a copy, or sees to it that there is none.
func (b *barrier) goOn() {
	b.applying.Lock()
	if b.holds = false; b.copied {
		b.limits = nil
	}
	b.applying.Unlock()
	b.run()
}

// run does what was kept and may be done now, and keeps the rest again.
func (b *barrier) run() {
	b.mu.Lock()
	kept := b.kept
	b.kept = nil
	b.mu.Unlock()
	for _, do := range kept {
		do()
	}
}
