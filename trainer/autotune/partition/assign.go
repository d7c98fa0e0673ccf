package partition

import (
	"cmp"
	"slices"
)

// Assign gives pieces to holders and returns the holder of each piece. The
// heaviest piece comes first, and each goes to the holder with the least load
// so far: LPT of Graham, "Bounds on multiprocessing timing anomalies", 1969.
// Among holders with equal loads it goes to the one with fewer of these pieces,
// then to the first.
//
// base, at least one number, is what each holder carries besides.
func Assign(loads, base []float64) []int {
	carried, order := slices.Clone(base), make([]int, len(loads))
	for i := range order {
		order[i] = i
	}
	slices.SortStableFunc(order, func(a, b int) int { return cmp.Compare(loads[b], loads[a]) })
	holders, pieces := make([]int, len(loads)), make([]int, len(base))
	for _, i := range order {
		to := 0
		for o := range carried {
			if carried[o] < carried[to] || carried[o] == carried[to] && pieces[o] < pieces[to] {
				to = o
			}
		}
		holders[i] = to
		pieces[to]++
		carried[to] += loads[i]
	}
	return holders
}

// Keep renames the holders of an assignment, so that less has to move. here[i] is
// how much of piece i each holder has now. The pieces of one holder stay together:
// the group of which most is at one holder goes to that holder, then the next. It
// is for holders that carry the same besides.
func Keep(assigned []int, here [][]float64) []int {
	type pair struct {
		group, holder int
		amount        float64
	}
	var pairs []pair
	sums := map[[2]int]float64{}
	for i, group := range assigned {
		for holder, amount := range here[i] {
			sums[[2]int{group, holder}] += amount
		}
	}
	for at, amount := range sums {
		pairs = append(pairs, pair{at[0], at[1], amount})
	}
	slices.SortFunc(pairs, func(a, b pair) int {
		return cmp.Or(cmp.Compare(b.amount, a.amount), cmp.Compare(a.group, b.group), cmp.Compare(a.holder, b.holder))
	})
	to, taken := map[int]int{}, map[int]bool{}
	for _, p := range pairs {
		if _, placed := to[p.group]; !placed && !taken[p.holder] {
			to[p.group], taken[p.holder] = p.holder, true
		}
	}
	kept := make([]int, len(assigned))
	for i, group := range assigned {
		kept[i] = to[group]
	}
	return kept
}
