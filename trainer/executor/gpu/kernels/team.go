package kernels

// team describes how a reduction kernel divides the threads of a thread block
// among the rows of a tensor. The file team.cuh is its counterpart in CUDA.
type team struct {
	lanes  int  // number of threads that reduce one row together
	across bool // if true, neighbouring threads read neighbouring rows; set if the elements of a row are not adjacent in memory
}

// teamFor returns the team for rows of n elements. The parameter across is
// true if the elements of a row are not adjacent in memory. One thread reduces
// a row of at most 32 elements; it adds them in the order of memory.
//
// TODO: no real GPU has run this; the limits 32 and 1024 are guesses.
func teamFor(n int, across bool) team {
	switch {
	case n <= 32:
		return team{1, across}
	case across:
		return team{8, true} // a block then reads 32 neighbouring rows at a time, whose elements are adjacent in memory
	case n <= 1024:
		return team{32, false}
	}
	return team{blockThreads, false}
}

// grid returns the size of the CUDA grid, in thread blocks, for a reduction of
// the given number of rows.
func (t team) grid(rows int) [3]uint32 {
	return [3]uint32{uint32(min(divide(rows, blockThreads/t.lanes), mostBlocks)), 1, 1}
}

// parts divides each row of n elements into parts if there are too few rows to
// keep a GPU busy. It returns the number of parts of a row and the number of
// elements of a part.
//
// TODO: no real GPU has run this; the constants busy and each are guesses.
func (t team) parts(rows, n int) (parts, size int) {
	const (
		busy = 256 // number of blocks that should keep a GPU busy
		each = 16  // smallest number of elements that one thread adds
	)
	blocks := max(1, divide(rows, blockThreads/t.lanes))
	parts = min(busy/blocks, n/(t.lanes*each))
	if parts < 2 {
		return 1, max(n, 1)
	}
	size = divide(n, parts)
	return divide(n, size), size
}

// flag returns a condition as a kernel parameter: 1 for true, 0 for false.
func flag(b bool) int {
	if b {
		return 1
	}
	return 0
}
