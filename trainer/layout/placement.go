package layout

import (
	"cmp"
	"errors"
	"fmt"
	"slices"

	"github.com/plx-run/plx/trainer/cluster"
	"github.com/plx-run/plx/trainer/policy"
)

// placer computes which shard holder gets which pieces, for Declaration.AssignPieces.
type placer struct {
	d       *Declaration
	a       policy.Architecture
	servers int // number of parameter servers that may hold pieces; method place sets 0 for all-reduce
}

func (p placer) place(limit int) error {
	if err := p.check(); err != nil {
		return err
	}
	if p.a == policy.AllReduce {
		p.servers = 0
	}
	var pieces []Piece
	if p.a != policy.Servers {
		for _, piece := range placeWorkers(p.d.Variables, len(p.d.Workers), p.d.BucketBytes, p.a.OnWorkers(true)) {
			pieces = append(pieces, piece.on(p.servers+piece.Holder)) // in d.Holders, servers come before workers
		}
	}
	if p.a != policy.AllReduce {
		pieces = append(pieces, placeServers(p.d.Variables, p.servers, cmp.Or(limit, defaultLimit), !p.a.OnWorkers(false))...)
	}
	p.settle(pieces)
	return nil
}

func (p placer) check() error {
	sparse := false
	for _, v := range p.d.Variables {
		if err := v.check(); err != nil {
			return err
		}
		sparse = sparse || v.Sparse != nil
	}
	switch {
	case p.servers < 1 && (p.a == policy.Servers || p.a == policy.Hybrid && sparse):
		return fmt.Errorf("architecture %s: no server to hold variables; choose allreduce", p.a)
	case len(p.d.Workers) == 0:
		return fmt.Errorf("architecture %s: no workers", p.a)
	}
	return nil
}

// settle sets d.Holders and d.Pieces. It omits tasks that have no piece and
// cannot get one later.
func (p placer) settle(pieces []Piece) {
	d, servers := p.d, p.servers
	holds := make([]bool, servers+len(d.Workers))
	holds[0] = len(pieces) == 0 // a model without variables also needs a holder, because the first holder stores the loss
	for _, piece := range pieces {
		holds[piece.Holder] = true
	}
	d.Holders, d.Pieces = nil, nil
	index := make([]int, len(holds))
	for i, has := range holds {
		task := cluster.Task{Role: cluster.PS, Index: i}
		if i >= servers {
			task = cluster.Task{Role: cluster.Worker, Index: i - servers}
		}
		if has || d.Movable && (i < servers || p.a != policy.Servers) {
			index[i] = len(d.Holders)
			d.Holders = append(d.Holders, task)
		}
	}
	for _, piece := range pieces {
		d.Pieces = append(d.Pieces, piece.on(index[piece.Holder]))
	}
}

// BlockElements is the number of elements in a block. A dense variable is
// divided only between blocks. The global norm is computed from one sum of
// squares per block, so it has the same bits for every placement.
const BlockElements = 1024

// defaultLimit is the size in bytes above which a variable is divided among
// servers, if the caller of AssignPieces passes limit 0.
const defaultLimit = 4 << 20

// placeServers distributes variables over servers, whose number is holders:
// the sparse variables, and also the dense ones if dense is set. Each variable
// goes to the server with the fewest bytes so far; of several such servers, to
// the first.
//
// A variable of more than limit bytes is first divided into one piece of
// nearly equal size per server. The result depends only on the arguments. The
// variables must be valid.
func placeServers(variables []Variable, holders, limit int, dense bool) (pieces []Piece) {
	loads := make([]int, holders)
	for i, v := range variables {
		if dense || v.Sparse != nil {
			pieces = append(pieces, v.place(i, loads, limit)...)
		}
	}
	return pieces
}

// place divides v if it is larger than limit bytes, and assigns each piece to
// the holder with the smallest load. loads, indexed by holder, is the number
// of bytes on each holder; place adds the pieces to it.
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

// Partition divides v into at most n pieces of nearly equal size. It divides a
// dense variable only at multiples of BlockElements.
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

// placeWorkers distributes variables for an all-reduce over workers, whose
// number is holders: the dense variables, and also the sparse ones if sparse
// is set. It groups the dense variables into buckets. It divides every bucket
// into one range of nearly equal size per worker, at multiples of
// BlockElements. It divides a sparse variable by rows. The variables must be
// valid.
func placeWorkers(variables []Variable, holders, bucketBytes int, sparse bool) []Piece {
	var pieces []Piece
	loads := make([]int, holders)
	for _, bucket := range Buckets(variables, bucketBytes) {
		pieces = append(pieces, spread(variables, bucket, loads)...)
	}
	for i, v := range variables {
		if sparse && v.Sparse != nil {
			pieces = append(pieces, v.place(i, loads, 0)...)
		}
	}
	return inOrder(pieces)
}

// Buckets groups the dense variables into buckets whose gradients are sent
// together. A bucket has consecutive variables of at most the given number of
// bytes in total, or one variable that is larger; 0 bytes mean
// defaultBucketBytes. Buckets are in reverse order of the variables, because
// backpropagation computes gradients roughly in that order.
func Buckets(variables []Variable, bytes int) (buckets [][]int) {
	bytes = cmp.Or(bytes, defaultBucketBytes)
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

// spread divides one bucket into ranges, and assigns each range to the holder
// with the smallest load. loads, indexed by holder, is the number of bytes on
// each holder; spread adds the ranges to it.
func spread(variables []Variable, bucket []int, loads []int) (pieces []Piece) {
	total := 0
	for _, i := range bucket {
		total += variables[i].Bytes()
	}
	taken := slices.Clone(loads) // copy of loads in which a holder that has a range counts as full, so that it gets no second range
	at, last, holder := 0, -1, 0 // at: bytes of the bucket so far; last and holder: index and holder of the current range
	for _, i := range bucket {
		v := variables[i]
		for offset := 0; offset < v.Units(); offset += BlockElements {
			if r := at * len(loads) / total; r != last {
				last, holder = r, lightest(taken)
				taken[holder] = MaxElements
			}
			count := min(BlockElements, v.Units()-offset)
			pieces = extend(pieces, Piece{Variable: i, Holder: holder, Offset: offset, Count: count})
			loads[holder] += count * v.UnitBytes()
			at += count * v.UnitBytes()
		}
	}
	return pieces
}

// extend appends p to pieces. If p continues the last piece and has the same
// holder, extend makes the last piece longer instead.
func extend(pieces []Piece, p Piece) []Piece {
	if last := len(pieces) - 1; last >= 0 && pieces[last].Variable == p.Variable && pieces[last].Holder == p.Holder {
		pieces[last].Count += p.Count
		return pieces
	}
	return append(pieces, p)
}

// Transfer is the range [Lo, Hi) of rows that moves from the piece Old to the
// piece New, usually to another shard holder.
type Transfer struct {
	Lo, Hi   int
	Old, New Piece
}

// Transfers compares two placements of the same variables. It returns the rows
// whose piece in new has no equal piece in old. Each row occurs once, ordered
// by variable and row.
func Transfers(old, new []Piece) (all []Transfer) {
	old, new = inOrder(old), inOrder(new)
	for len(old) > 0 && len(new) > 0 {
		a, b := old[0], new[0]
		lo, hi := max(a.Offset, b.Offset), min(a.Offset+a.Count, b.Offset+b.Count)
		if a != b {
			all = append(all, Transfer{lo, hi, a, b})
		}
		if hi == a.Offset+a.Count {
			old = old[1:]
		}
		if hi == b.Offset+b.Count {
			new = new[1:]
		}
	}
	return all
}

// inOrder returns a copy of pieces, sorted by variable and offset.
func inOrder(pieces []Piece) []Piece {
	return slices.SortedFunc(slices.Values(pieces), func(a, b Piece) int {
		return cmp.Or(cmp.Compare(a.Variable, b.Variable), cmp.Compare(a.Offset, b.Offset))
	})
}

// Placed returns a copy of d with the given pieces. It returns an error if the
// variables cannot move from their current placement to that one.
func (d *Declaration) Placed(pieces []Piece) (*Declaration, error) {
	if !d.Movable {
		return nil, errors.New("variables cannot move: they were not declared movable")
	}
	next := *d
	next.Pieces = slices.Clone(pieces)
	if err := (checker{&next}).pieces(); err != nil {
		return nil, err
	}
	for _, t := range Transfers(d.Pieces, next.Pieces) {
		v := d.Variables[t.New.Variable]
		if v.Sparse == nil {
			return nil, fmt.Errorf("variable %q: only sparse variables can move", v.Name)
		}
		from, to := d.Holders[t.Old.Holder], d.Holders[t.New.Holder]
		if d.Aggregates(from) != d.Aggregates(to) {
			return nil, fmt.Errorf("variable %q: from %s to %s: with local aggregation it can move only between servers or only between workers", v.Name, from, to)
		}
	}
	return &next, nil
}

// Holding reports for every shard holder, in the order of d.Holders, whether
// it has a piece of a variable or the loss.
func (d *Declaration) Holding() []bool {
	all := make([]bool, len(d.Holders))
	for _, p := range d.AllPieces() {
		all[p.Holder] = true
	}
	return all
}

// Growth returns the bytes of memory that a shard holder needs for the pieces
// that it has in d, but not in another declaration (before). The result
// includes optimiser state.
func (d *Declaration) Growth(before *Declaration, holder int) (bytes uint64) {
	stays := map[Piece]bool{}
	for _, p := range before.Pieces {
		stays[p] = true
	}
	for _, p := range d.Pieces {
		if p.Holder != holder || stays[p] {
			continue
		}
		v := d.Variables[p.Variable]
		slots := d.Rule(v).Slots()
		bytes += uint64(p.Count)*uint64(v.UnitBytes())*uint64(1+slots) + uint64(p.Count)/8
	}
	return bytes
}
