package layout

import (
	"github.com/plx-run/plx/trainer/cluster"
	"github.com/plx-run/plx/trainer/policy"
)

// Roster says who brings what to a holder.
type Roster struct {
	Tree         *Tree
	Contributors []Contributor // by virtual workers
	Of           []int         // by rank: index in contributors, -1: another worker of its host contributes
	Groups       []Range       // of contributors: those whose gradients are added
	Plans        []*Plan       // by group
}

// Contributor is a worker that sends sums to holders: of its own virtual workers, or of
// those of its host.
type Contributor struct {
	Rank           int
	VirtualWorkers Range
	Parts          []int // vertices of the tree, from left to right
	Group          int
	First          int // place of its first part among the group's inputs
}

// in is c in a group, with its first part at a place among the group's inputs.
func (c Contributor) in(group, first int) Contributor {
	c.Group, c.First = group, first
	return c
}

// NewRoster says who brings what to a holder.
func NewRoster(owner cluster.Task, d *Declaration) *Roster {
	r := &Roster{Tree: NewTree(d.VirtualWorkers), Of: make([]int, len(d.Workers))}
	ranks := d.Hosts
	if !d.Aggregates(owner) {
		ranks = nil
		for i := range d.Workers {
			ranks = append(ranks, Range{i, i + 1})
		}
	}
	for _, host := range ranks {
		leaves := Range{d.Workers[host.Lo].Lo, d.Workers[host.Hi-1].Hi}
		for rank := host.Lo; rank < host.Hi; rank++ {
			r.Of[rank] = -1
		}
		r.Of[host.Lo] = len(r.Contributors)
		r.Contributors = append(r.Contributors, Contributor{
			Rank: host.Lo, VirtualWorkers: leaves, Parts: r.Tree.Parts(leaves.Lo, leaves.Hi),
		})
	}
	r.group(d.Sync)
	return r
}

// group makes the groups of a synchronisation mode.
func (r *Roster) group(s policy.Sync) {
	for g, members := range groups(s, len(r.Contributors)) {
		var inputs []int
		for i := members.Lo; i < members.Hi; i++ {
			r.Contributors[i] = r.Contributors[i].in(g, len(inputs))
			inputs = append(inputs, r.Contributors[i].Parts...)
		}
		r.Groups = append(r.Groups, members)
		r.Plans = append(r.Plans, NewPlan(r.Tree, inputs, []int{r.Tree.Root()}))
	}
}

// groups cuts n contributors into the groups of a synchronisation mode.
func groups(s policy.Sync, n int) (all []Range) {
	count := s.Groups(n)
	for g := range count {
		all = append(all, Range{n * g / count, n * (g + 1) / count})
	}
	return all
}

// Contributor returns the contributor that rank is, nil: it is none.
func (r *Roster) Contributor(rank int) *Contributor {
	if i := r.Of[rank]; i >= 0 {
		return &r.Contributors[i]
	}
	return nil
}

// Input returns the place of a part among the inputs of c's group.
func (c *Contributor) Input(part uint32) (int, bool) {
	for i, v := range c.Parts {
		if uint64(part) == uint64(v) {
			return c.First + i, true
		}
	}
	return 0, false
}

// NewHostRoster is the roster of the workers of one host. Their sums grow to
// parts, those that the host brings.
func NewHostRoster(t *Tree, d *Declaration, ranks Range, parts []int) *Roster {
	r := &Roster{Tree: t, Of: make([]int, len(d.Workers)), Groups: []Range{{0, ranks.Len()}}}
	for rank := range r.Of {
		r.Of[rank] = -1
	}
	var inputs []int
	for rank := ranks.Lo; rank < ranks.Hi; rank++ {
		r.Of[rank] = len(r.Contributors)
		c := Contributor{Rank: rank, VirtualWorkers: d.Workers[rank], First: len(inputs)}
		c.Parts = t.Parts(c.VirtualWorkers.Lo, c.VirtualWorkers.Hi)
		inputs = append(inputs, c.Parts...)
		r.Contributors = append(r.Contributors, c)
	}
	r.Plans = []*Plan{NewPlan(t, inputs, parts)}
	return r
}
