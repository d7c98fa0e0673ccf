package partition

import (
	"cmp"
	"slices"
)

// Keep renames the owners of an assignment, so that less has to move: here[i]
// says how much of piece i each owner has already. The pieces of one owner
// stay together; the group that has most at some owner goes to that owner,
// then the next. It is for owners that carry the same besides.
func Keep(assigned []int, here [][]float64) []int {
	type pair struct {
		group, owner int
		amount       float64
	}
	var pairs []pair
	sums := map[[2]int]float64{}
	for i, group := range assigned {
		for owner, amount := range here[i] {
			sums[[2]int{group, owner}] += amount
		}
	}
	for at, amount := range sums {
		pairs = append(pairs, pair{at[0], at[1], amount})
	}
	slices.SortFunc(pairs, func(a, b pair) int {
		return cmp.Or(cmp.Compare(b.amount, a.amount), cmp.Compare(a.group, b.group), cmp.Compare(a.owner, b.owner))
	})
	to, taken := map[int]int{}, map[int]bool{}
	for _, p := range pairs {
		if _, placed := to[p.group]; !placed && !taken[p.owner] {
			to[p.group], taken[p.owner] = p.owner, true
		}
	}
	kept := make([]int, len(assigned))
	for i, group := range assigned {
		kept[i] = to[group]
	}
	return kept
}
