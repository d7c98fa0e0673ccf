package owner

import "github.com/plx-run/plx/trainer/cluster"

// roster says who brings what to an owner.
type roster struct {
	tree         *Tree
	contributors []contributor // by leaves
	of           []int         // by rank: index in contributors, -1: another worker of its host contributes
	groups       []Range       // of contributors: those whose gradients are added
	plans        []*plan       // by group
}

// contributor is a worker that sends sums to owners: of its own leaves, or of
// those of its host.
type contributor struct {
	rank   int
	leaves Range
	parts  []int // vertices of the tree, from left to right
	group  int
	first  int // place of its first part among the group's inputs
}

func newRoster(d *Declaration, owner cluster.Task) *roster {
	r := &roster{tree: NewTree(d.Leaves), of: make([]int, len(d.Workers))}
	ranks := d.Hosts
	if !d.aggregates(owner) {
		ranks = nil
		for i := range d.Workers {
			ranks = append(ranks, Range{i, i + 1})
		}
	}
	for _, host := range ranks {
		leaves := Range{d.Workers[host.Lo].Lo, d.Workers[host.Hi-1].Hi}
		for rank := host.Lo; rank < host.Hi; rank++ {
			r.of[rank] = -1
		}
		r.of[host.Lo] = len(r.contributors)
		r.contributors = append(r.contributors, contributor{
			rank: host.Lo, leaves: leaves, parts: r.tree.Parts(leaves.Lo, leaves.Hi),
		})
	}
	r.group(d.Sync)
	return r
}

// group makes the groups of a synchronisation mode.
func (r *roster) group(s Sync) {
	for g, members := range s.groups(len(r.contributors)) {
		var inputs []int
		for i := members.Lo; i < members.Hi; i++ {
			c := &r.contributors[i]
			c.group, c.first = g, len(inputs)
			inputs = append(inputs, c.parts...)
		}
		r.groups = append(r.groups, members)
		r.plans = append(r.plans, newPlan(r.tree, inputs, []int{r.tree.Root()}))
	}
}

// groups cuts n contributors, which are all workers where there are several.
func (s Sync) groups(n int) (all []Range) {
	groups := 1
	switch s.Mode {
	case Asynchronous, Bounded:
		groups = n
	case Grouped:
		groups = s.Number
	}
	for g := range groups {
		all = append(all, Range{n * g / groups, n * (g + 1) / groups})
	}
	return all
}

// contributor returns the contributor that rank is, nil: it is none.
func (r *roster) contributor(rank int) *contributor {
	if i := r.of[rank]; i >= 0 {
		return &r.contributors[i]
	}
	return nil
}

// input returns the place of a part among the inputs of c's group.
func (c *contributor) input(part uint32) (int, bool) {
	for i, v := range c.parts {
		if uint64(part) == uint64(v) {
			return c.first + i, true
		}
	}
	return 0, false
}
