package layout

import (
	"slices"
)

// FirstStepOf is the step that a group begins with, first the one of a worker.
func (d *Declaration) FirstStepOf(group int) uint64 {
	if d.Cut == nil {
		return d.First
	}
	return d.Cut[group]
}

func (d *Declaration) FirstStep(rank int) uint64 {
	return d.FirstStepOf(slices.IndexFunc(d.Groups(), func(g Range) bool { return rank < g.Hi }))
}

func (d *Declaration) FirstSteps() (all []uint64) {
	for rank := range d.Workers {
		all = append(all, d.FirstStep(rank))
	}
	return all
}

// StartsAhead reports whether a worker begins further ahead of another than is
// allowed: when the checkpoint was made it had finished its step and waited.
func (d *Declaration) StartsAhead(rank int) bool {
	return d.Sync.StartsAhead(d.FirstSteps(), rank)
}

// Groups returns the ranks of the workers that take every step together.
func (d *Declaration) Groups() []Range { return groups(d.Sync, len(d.Workers)) }
