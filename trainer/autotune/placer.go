package autotune

import (
	"cmp"
	"fmt"
	"slices"

	"github.com/plx-run/plx/trainer/autotune/partition"
	"github.com/plx-run/plx/trainer/cluster"
	"github.com/plx-run/plx/trainer/layout"
)

// crowding limits the number of rows in a partition to four times the mean.
// Otherwise a few frequently used rows could fill most partitions, and one
// host would hold all other rows.
//
// TODO: measure other values; four is a guess.
const crowding = 4

// mostPartitions is the default of the largest number of partitions that a
// search tries, per shard holder.
//
// TODO: measure searches with more partitions; the benchmarks have at most this
// number.
const mostPartitions = 16

// division says into how many partitions each table is cut, and whether
// servers or workers hold them.
type division struct {
	parts []int          // by table: number of partitions
	roles []cluster.Role // by table: role of the tasks that hold its partitions, parameter server or worker
}

// placer cuts embedding tables into pieces and assigns these to shard holders
// (the tasks that store rows). Its results depend only on its fields and
// arguments.
type placer struct {
	declared *layout.Declaration // the job's declaration; its Pieces are the current placement
	least    []int               // by table: smallest number of partitions allowed; 0 means that the table has no partitioner
	most     int                 // largest number of partitions that a search tries; 0 means mostPartitions for each holder
}

// Place returns the pieces of the embedding tables before the first step, when
// no step has been measured. It cuts each table that has a partitioner into
// the given number of partitions. If partitions is 0, it makes one partition
// per shard holder, up to the limit most (0 means no limit).
//
// least is, by table, the smallest number of partitions allowed. 0 means that
// the table has no partitioner, so its pieces stay as declared.
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

// tables returns the index of the first embedding table. All variables from
// there on are embedding tables.
func (p placer) tables() int { return len(p.declared.Variables) - len(p.least) }

// first returns the division of the tables before anything has been measured.
// partitions is the number that the user has set; 0 means that none is set.
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

// cut returns a copy of d in which every table with a partitioner has parts
// partitions. A table whose smallest allowed number is larger has that number
// instead.
func (p placer) cut(d division, parts int) division {
	d.parts = slices.Clone(d.parts)
	for i, least := range p.least {
		if least > 0 {
			d.parts[i] = max(parts, least)
		}
	}
	return d
}

// bounds returns the number of partitions with which the autotuner's search
// starts, and the smallest and largest number that it tries. All are 0 if no
// table has a partitioner.
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

// holders returns the indices of the shard holders with the given role.
func (p placer) holders(role cluster.Role) (all []int) {
	for i, t := range p.declared.Holders {
		if t.Role == role {
			all = append(all, i)
		}
	}
	return all
}

// pieces cuts the tables as d says and assigns the pieces, so that every shard
// holder transfers about the same number of bytes per step. counts is, by
// table and bucket of rows, how often rows were transferred in the given
// number of steps (at least one). Without counts, all rows count the same.
// Pieces of other variables do not move.
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
			row := float64(2 * v.UnitBytes()) // A worker transfers each row twice: it pulls the row, and sends the gradient.
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

// assign sets the holder of each piece in cut, the heaviest piece first. A
// holder must have the role that d gives the piece's table. loads are the
// bytes per step of the pieces. base are, by holder, the bytes that the holder
// transfers for other variables.
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

// present returns, by piece and holder, how many rows of the piece the holder
// stores now.
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

// denseLoad returns the bytes per step that the holder of a dense piece
// receives (gradients) and sends (values).
func (p placer) denseLoad(piece layout.Piece) float64 {
	contributors := len(p.declared.Workers)
	if len(p.declared.Hosts) > 0 && p.declared.Holders[piece.Holder].Role == cluster.PS {
		contributors = len(p.declared.Hosts)
	}
	return float64(2 * contributors * piece.Count * p.declared.Variables[piece.Variable].Dtype.Size())
}
