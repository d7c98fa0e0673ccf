package sparse

import "slices"

// Options records which rows of a shard workers request for a step, for two
// consecutive steps. The zero value knows none. Its user guards it.
type Options struct {
	rows [2][]uint64 // by parity of the step: one bit per row
	of   [2]uint64   // by parity: 1 + the step; 0 means none
}

// Add records that rows of the shard [lo, hi) are requested for a step. It
// forgets the requests of two steps before.
func (w *Options) Add(step uint64, lo, hi int64, index []int64) {
	at := step % 2
	if w.of[at] > step+1 {
		return // a request for a past step changes nothing
	}
	if n := int(hi-lo+63) / 64; len(w.rows[at]) != n {
		w.rows[at] = make([]uint64, n)
	} else if w.of[at] != step+1 {
		clear(w.rows[at])
	}
	w.of[at] = step + 1
	for _, row := range index {
		w.rows[at][(row-lo)/64] |= 1 << ((row - lo) % 64)
	}
}

// Split returns the rows that no worker requested for a step, free, and the
// others. If nothing is known of the step, none is free. lo is that of Add.
func (w *Options) Split(step uint64, lo int64, index []int64) (free, taken []int64) {
	at := step % 2
	if w.of[at] == 0 || w.of[at] != step+1 {
		return nil, index
	}
	for _, row := range index {
		if w.rows[at][(row-lo)/64]>>((row-lo)%64)&1 == 0 {
			free = append(free, row)
		} else {
			taken = append(taken, row)
		}
	}
	return free, taken
}

// Common returns the rows that are in both of two ascending lists.
func Common(a, b []int64) (both []int64) {
	if len(a) > len(b) {
		a, b = b, a
	}
	for _, row := range a {
		i, found := slices.BinarySearch(b, row)
		if found {
			both = append(both, row)
		}
		b = b[i:]
	}
	return both
}

// Union returns the rows that are in any of several ascending lists, ascending
// and each once.
func Union(lists ...[]int64) []int64 {
	if len(lists) == 1 {
		return lists[0]
	}
	all := slices.Concat(lists...)
	slices.Sort(all)
	return slices.Compact(all)
}
