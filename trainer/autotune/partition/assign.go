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
// base, at least one number, is what each holder carries besides. A load that is
// negative or no number counts as 0.
func Assign(loads, base []float64) []int {
	carried := make([]float64, len(base))
	for i, load := range base {
		carried[i] = sane(load)
	}
	order := make([]int, len(loads))
	for i := range order {
		order[i] = i
	}
	slices.SortStableFunc(order, func(a, b int) int { return cmp.Compare(sane(loads[b]), sane(loads[a])) })
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
		carried[to] += sane(loads[i])
	}
	return holders
}

func sane(load float64) float64 {
	if load > 0 {
		return load
	}
	return 0
}
