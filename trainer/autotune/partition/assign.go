package partition

import (
	"cmp"
	"slices"
)

// Assign assigns pieces to shard holders (the tasks that store rows) and
// returns the holder of each piece. It takes the heaviest piece first, and
// gives each piece to the holder with the smallest load so far (the LPT rule
// of Graham, "Bounds on multiprocessing timing anomalies", 1969). If loads are
// equal, it prefers the holder with fewer pieces, then the holder with the
// lower index.
//
// The parameter base has, by holder, the load from other variables. It must
// not be empty.
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

// Keep exchanges the holders of an assignment with each other, so that fewer
// rows have to move. All pieces of one holder form a group and stay together.
// For each group and holder, Keep adds up how much of the group the holder has
// now. It takes these pairs in order, the largest amount first. It gives the
// group to the holder unless one of the two was already in an earlier choice.
//
// here[i] is how much of piece i each holder has now. Keep is only useful if
// all holders have the same load from other variables.
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
