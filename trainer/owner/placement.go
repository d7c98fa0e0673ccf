package owner

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

// PlaceServers spreads variables over so many owners: each goes to the owner
// with the fewest bytes so far, the first of them where several have as few.
// A variable of more than limit bytes is first cut in as many near-equal
// partitions as there are owners. Same variables, same placement. The
// variables must have passed a check.
func PlaceServers(variables []Variable, owners, limit int) []Piece {
	var pieces []Piece
	loads := make([]int, owners)
	for i, v := range variables {
		pieces = append(pieces, v.place(i, loads, limit)...)
	}
	return pieces
}

// place gives v's partitions to the owners with the smallest loads.
func (v Variable) place(index int, loads []int, limit int) (pieces []Piece) {
	parts := 1
	if v.units()*v.unitSize() > limit {
		parts = len(loads)
	}
	for _, p := range v.cut(index, parts) {
		p.Owner = lightest(loads)
		loads[p.Owner] += p.Count * v.unitSize()
		pieces = append(pieces, p)
	}
	return pieces
}

// cut returns at most n near-equal pieces of v, at bounds of blocks or rows.
func (v Variable) cut(index, n int) (pieces []Piece) {
	block := 1
	if v.Sparse == nil {
		block = BlockElements
	}
	units := v.units()
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

// PlaceWorkers spreads variables over so many owners for an all-reduce: the
// dense ones are fused into buckets, and every bucket is cut in as many
// near-equal ranges as there are owners, at bounds of blocks. A sparse one is
// cut by rows. The variables must have passed a check.
func PlaceWorkers(variables []Variable, owners, bucketBytes int) []Piece {
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
		size := v.units() * v.unitSize()
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
		total += variables[i].units() * variables[i].unitSize()
	}
	ranges := make([][]Piece, len(loads))
	sizes := make([]int, len(loads))
	at := 0 // bytes of the bucket before the block
	for _, i := range bucket {
		v := variables[i]
		for offset := 0; offset < v.units(); offset += BlockElements {
			count := min(BlockElements, v.units()-offset)
			r := at * len(loads) / total
			ranges[r] = extend(ranges[r], Piece{Variable: i, Offset: offset, Count: count})
			sizes[r] += count * v.unitSize()
			at += count * v.unitSize()
		}
	}
	var pieces []Piece
	taken := make([]int, len(loads)) // loads; an owner has one range of a bucket
	copy(taken, loads)
	for _, r := range descending(sizes) {
		to := lightest(taken)
		loads[to] += sizes[r]
		taken[to] = maxElements
		for _, p := range ranges[r] {
			p.Owner = to
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
