package kernels

// team says how the threads of a block share rows: see team.cuh.
type team struct {
	lanes  int  // threads that reduce one row
	across bool // neighbouring threads take neighbouring rows
}

// teamFor returns the team for rows of n elements. Short rows take one thread,
// which adds in the order of memory.
func teamFor(n int, across bool) team {
	switch {
	case n <= 32:
		return team{1, across}
	case across:
		return team{8, true} // 32 neighbouring rows, for whole words of memory
	case n <= 1024:
		return team{32, false}
	}
	return team{blockThreads, false}
}

// grid is a grid for a number of rows.
func (t team) grid(rows int) [3]uint32 {
	return [3]uint32{uint32(min(divide(rows, blockThreads/t.lanes), mostBlocks)), 1, 1}
}

// parts divides rows of n elements, if there are too few rows to keep a GPU busy:
// the number of parts of each row, and their size.
func (t team) parts(rows, n int) (parts, size int) {
	const (
		busy = 256 // blocks
		each = 16  // elements that a thread has at least
	)
	blocks := max(1, divide(rows, blockThreads/t.lanes))
	parts = min(busy/blocks, n/(t.lanes*each))
	if parts < 2 {
		return 1, max(n, 1)
	}
	size = divide(n, parts)
	return divide(n, size), size
}

// flag is a condition as a parameter.
func flag(b bool) int {
	if b {
		return 1
	}
	return 0
}
