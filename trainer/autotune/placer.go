package autotune

import (
	"cmp"
	"fmt"
	"slices"

	"github.com/plx-run/plx/trainer/autotune/partition"
	"github.com/plx-run/plx/trainer/cluster"
	"github.com/plx-run/plx/trainer/layout"
)

// crowding bounds how many times the mean rows a partition may have, so that few
// rows which travel often do not leave all the others to one host.
const crowding = 4

// mostPartitions is how many partitions a search tries at most, per holder.
const mostPartitions = 16

// division is how tables are cut and which tasks may hold them.
type division struct {
	parts []int          // by table: number of partitions
	roles []cluster.Role // by table: the role of the tasks that may hold its pieces
}

// placer cuts tables and gives the pieces to shard holders. It is a pure
// function of the declaration and of what was measured.
type placer struct {
	declared *layout.Declaration // its Pieces are the present placement
	least    []int               // by table: fewest partitions allowed; 0 means that the table has no partitioner
	most     int                 // partitions that a search tries at most; 0 means mostPartitions per holder
}

// Place returns the pieces of a declaration before anything was measured. least
// says by table in how many partitions it must be cut at least, 0 for a table
// without a partitioner: those stay as they are declared. The others are cut in
// the given number of partitions, 0: as many as there are holders, and at most most,
// 0: without such a limit.
func Place(d *layout.Declaration, least []int, most, partitions int) ([]layout.Piece, error) {
	some := slices.ContainsFunc(least, func(n int) bool { return n > 0 })
	switch {
	case !some && partitions > 0:
		return nil, fmt.Errorf("--partitions %d: no embedding of the model has a partitioner: give it trainer.Partitioner(1), or use --partition-bytes", partitions)
	case !some || !d.Movable:
		return d.Pieces, nil
	}
	p := placer{d, least, most}
	return p.pieces(p.first(partitions), nil, 1), nil
}

// tables is the index of the first table: all variables from there on are.
func (p placer) tables() int { return len(p.declared.Variables) - len(p.least) }

// first is the division before anything was measured.
func (p placer) first(partitions int) division {
	var d division
	for i := range p.least {
		parts, role := 0, cluster.PS
		for _, piece := range p.declared.Pieces {
			if piece.Variable == p.tables()+i {
				parts, role = parts+1, p.declared.Holders[piece.Holder].Role
			}
		}
		d.parts, d.roles = append(d.parts, parts), append(d.roles, role)
	}
	if start, least, _ := p.bounds(d); least > 0 {
		return p.cut(d, cmp.Or(partitions, start))
	}
	return d
}

// cut returns d with so many partitions of every table that has a partitioner.
func (p placer) cut(d division, parts int) division {
	d.parts = slices.Clone(d.parts)
	for i, least := range p.least {
		if least > 0 {
			d.parts[i] = max(parts, least)
		}
	}
	return d
}

// bounds are the number of partitions that a search begins with, and the least
// and most that it tries. All are 0 if no table has a partitioner.
func (p placer) bounds(d division) (start, least, most int) {
	for i, fewest := range p.least {
		if fewest == 0 {
			continue
		}
		holders := len(p.holders(d.roles[i]))
		if least == 0 {
			least, most = fewest, mostPartitions*holders
		}
		least, most = min(least, fewest), min(most, p.declared.Variables[p.tables()+i].Shape[0])
		start = max(start, holders)
	}
	if p.most > 0 {
		most = min(most, p.most)
	}
	most = max(most, least)
	return min(max(start, least), most), least, most
}

// holders are the tasks of a role that may hold rows.
func (p placer) holders(role cluster.Role) (all []int) {
	for i, t := range p.declared.Holders {
		if t.Role == role {
			all = append(all, i)
		}
	}
	return all
}

// pieces cuts every table by d, so that all holders have about as many bytes to
// carry. counts say, by table and bucket, how often rows travelled in so many
// steps, at least one. Without counts every row counts as one that travels.
// Pieces of other variables stay where they are.
func (p placer) pieces(d division, counts [][]float64, steps int) []layout.Piece {
	declared, first := p.declared, p.tables()
	var all []layout.Piece
	base := make([]float64, len(declared.Holders))
	for _, piece := range declared.Pieces {
		if piece.Variable < first {
			all = append(all, piece)
			base[piece.Holder] += p.denseLoad(piece)
		}
	}
	var cut []layout.Piece
	var loads []float64
	for i := range p.least {
		v := declared.Variables[first+i]
		var often []float64
		if len(counts) > 0 {
			often = counts[i]
		}
		parts := min(d.parts[i], v.Shape[0])
		bounds := partition.Cut(v.Shape[0], parts, (crowding*v.Shape[0]+parts-1)/parts, often)
		for at, often := range partition.Loads(bounds, often) {
			cut = append(cut, layout.Piece{Variable: first + i, Offset: bounds[at], Count: bounds[at+1] - bounds[at]})
			row := float64(2 * v.UnitBytes()) // a worker pulls it and sends its gradient
			loads = append(loads, often*row/float64(steps))
		}
	}
	p.assign(d, cut, loads, base)
	all = append(all, cut...)
	slices.SortFunc(all, func(a, b layout.Piece) int {
		return cmp.Or(cmp.Compare(a.Variable, b.Variable), cmp.Compare(a.Offset, b.Offset))
	})
	return all
}

// assign gives the pieces of tables to holders of the tables' roles, the
// heaviest first. base is what each holder carries besides.
func (p placer) assign(d division, cut []layout.Piece, loads, base []float64) {
	for _, role := range []cluster.Role{cluster.PS, cluster.Worker} {
		holders, which := p.holders(role), []int(nil)
		for i, piece := range cut {
			if d.roles[piece.Variable-p.tables()] == role {
				which = append(which, i)
			}
		}
		carried := pick(base, holders)
		chosen := partition.Assign(pick(loads, which), carried)
		if len(which) > 0 && slices.Min(carried) == slices.Max(carried) {
			chosen = partition.Keep(chosen, p.present(pick(cut, which), holders))
		}
		for i, at := range which {
			piece := cut[at]
			piece.Holder = holders[chosen[i]]
			cut[at] = piece
		}
	}
}

// present is how many rows of each piece each holder has now.
func (p placer) present(pieces []layout.Piece, holders []int) [][]float64 {
	rows := make([][]float64, len(pieces))
	for i, piece := range pieces {
		rows[i] = make([]float64, len(holders))
		for _, now := range p.declared.Pieces {
			from, to := max(piece.Offset, now.Offset), min(piece.Offset+piece.Count, now.Offset+now.Count)
			if at := slices.Index(holders, now.Holder); at >= 0 && now.Variable == piece.Variable && from < to {
				rows[i][at] += float64(to - from)
			}
		}
	}
	return rows
}

func pick[T any](from []T, which []int) []T {
	picked := make([]T, len(which))
	for i, at := range which {
		picked[i] = from[at]
	}
	return picked
}

// denseLoad is what the holder of a dense piece sends and receives in a step, in
// bytes.
func (p placer) denseLoad(piece layout.Piece) float64 {
	contributors := len(p.declared.Workers)
	if len(p.declared.Hosts) > 0 && p.declared.Holders[piece.Holder].Role == cluster.PS {
		contributors = len(p.declared.Hosts)
	}
	return float64(2 * contributors * piece.Count * p.declared.Variables[piece.Variable].Dtype.Size())
}
