package layout

import (
	"cmp"
	"slices"
)

// BlockElements is how many elements of a dense variable stay together: a
// variable is cut only at multiples of it. The norm of a gradient is the sum
// over blocks, so it has the same bits wherever they are.
const BlockElements = 1024

// DefaultLimit is the size in bytes from which PlaceServers cuts a variable.
const DefaultLimit = 4 << 20

// placeServers spreads variables over so many holders: each goes to the holder
// with the fewest bytes so far, the first of them where several have as few.
// A variable of more than limit bytes is first cut in as many near-equal
// partitions as there are holders. Same variables, same placement. The
// variables must have passed a check.
func placeServers(variables []Variable, owners, limit int) []Piece {
	var pieces []Piece
	loads := make([]int, owners)
	for i, v := range variables {
		pieces = append(pieces, v.place(i, loads, limit)...)
	}
	return pieces
}

// place gives v's partitions to the holders with the smallest loads.
func (v Variable) place(index int, loads []int, limit int) (pieces []Piece) {
	parts := 1
	if v.Units()*v.UnitBytes() > limit {
		parts = len(loads)
	}
	for _, p := range v.Partition(index, parts) {
		p.Holder = lightest(loads)
		loads[p.Holder] += p.Count * v.UnitBytes()
		pieces = append(pieces, p)
	}
	return pieces
}

// Partition returns at most n near-equal pieces of v, at bounds of blocks or rows.
func (v Variable) Partition(index, n int) (pieces []Piece) {
	block := 1
	if v.Sparse == nil {
		block = BlockElements
	}
	units := v.Units()
	blocks := (units + block - 1) / block
	for i := range n {
		from, to := blocks*i/n*block, min(blocks*(i+1)/n*block, units)
		if from < to {
			pieces = append(pieces, Piece{Variable: index, Offset: from, Count: to - from})
		}
	}
	return pieces
}

func lightest(loads []int) int { return slices.Index(loads, slices.Min(loads)) }

// placeWorkers spreads variables over so many holders for an all-reduce: the
// dense ones are fused into buckets, and every bucket is cut in as many
// near-equal ranges as there are holders, at bounds of blocks. A sparse one is
// cut by rows. The variables must have passed a check.
func placeWorkers(variables []Variable, owners, bucketBytes int) []Piece {
	var pieces []Piece
	loads := make([]int, owners)
	for _, bucket := range Buckets(variables, bucketBytes) {
		pieces = append(pieces, spread(variables, bucket, loads)...)
	}
	for i, v := range variables {
		if v.Sparse != nil {
			pieces = append(pieces, v.place(i, loads, 0)...)
		}
	}
	slices.SortFunc(pieces, func(a, b Piece) int {
		return cmp.Or(cmp.Compare(a.Variable, b.Variable), cmp.Compare(a.Offset, b.Offset))
	})
	return pieces
}

// Buckets groups the dense variables in the reverse of their order, which is
// about the order in which their gradients are computed: consecutive ones
// share a bucket while they fit in it. 0 bytes mean DefaultBucketBytes.
func Buckets(variables []Variable, bytes int) (buckets [][]int) {
	bytes = cmp.Or(bytes, DefaultBucketBytes)
	full := 0
	for i := range slices.Backward(variables) {
		v := variables[i]
		if v.Sparse != nil {
			continue
		}
		size := v.Units() * v.UnitBytes()
		if last := len(buckets) - 1; last >= 0 && full+size <= bytes {
			buckets[last] = append(buckets[last], i)
			full += size
			continue
		}
		buckets, full = append(buckets, []int{i}), size
	}
	return buckets
}

// spread cuts one bucket. The largest range goes to the smallest load.
func spread(variables []Variable, bucket []int, loads []int) []Piece {
	total := 0
	for _, i := range bucket {
		total += variables[i].Units() * variables[i].UnitBytes()
	}
	ranges := make([][]Piece, len(loads))
	sizes := make([]int, len(loads))
	at := 0 // bytes of the bucket before the block
	for _, i := range bucket {
		v := variables[i]
		for offset := 0; offset < v.Units(); offset += BlockElements {
			count := min(BlockElements, v.Units()-offset)
			r := at * len(loads) / total
			ranges[r] = extend(ranges[r], Piece{Variable: i, Offset: offset, Count: count})
			sizes[r] += count * v.UnitBytes()
			at += count * v.UnitBytes()
		}
	}
	var pieces []Piece
	taken := make([]int, len(loads)) // loads; a holder has one range of a bucket
	copy(taken, loads)
	for _, r := range descending(sizes) {
		to := lightest(taken)
		loads[to] += sizes[r]
		taken[to] = MaxElements
		for _, p := range ranges[r] {
			p.Holder = to
			pieces = append(pieces, p)
		}
	}
	return pieces
}

// extend appends p, or makes the last piece longer where p follows it.
func extend(pieces []Piece, p Piece) []Piece {
	if last := len(pieces) - 1; last >= 0 && pieces[last].Variable == p.Variable {
		pieces[last].Count += p.Count
		return pieces
	}
	return append(pieces, p)
}

// descending returns the indices of sizes that are not 0, largest first.
func descending(sizes []int) []int {
	var order []int
	for i, n := range sizes {
		if n > 0 {
			order = append(order, i)
		}
	}
	slices.SortStableFunc(order, func(a, b int) int { return cmp.Compare(sizes[b], sizes[a]) })
	return order
}
