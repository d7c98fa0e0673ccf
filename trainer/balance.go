package trainer

import (
	"cmp"
	"fmt"
	"slices"

	"github.com/plx-run/plx/trainer/cluster"
	"github.com/plx-run/plx/trainer/owner"
	"github.com/plx-run/plx/trainer/partition"
)

// crowding bounds how many more rows than the mean a partition may have, so
// that few rows which travel often do not leave all the others to one host.
const crowding = 4

// mostPartitions is how many partitions a search tries at most, per owner.
const mostPartitions = 16

// allotment says how tables are cut and who may own them.
type allotment struct {
	parts  []int          // by table
	routes []cluster.Role // by table: servers or workers
}

// newAllotment is how tables are cut before anything was measured: as the
// declaration has it, but for those with a partitioner.
func (r *Replica) newAllotment() allotment {
	d, l := &r.declared, allotment{}
	first := len(d.Variables) - len(r.tables)
	for i := range r.tables {
		parts, role := 0, cluster.PS
		for _, p := range d.Pieces {
			if p.Variable == first+i {
				parts, role = parts+1, d.Owners[p.Owner].Role
			}
		}
		l.parts, l.routes = append(l.parts, parts), append(l.routes, role)
	}
	if start, least, _ := l.bounds(r); least > 0 {
		return l.cut(r, cmp.Or(r.job.config.partitions, start))
	}
	return l
}

// cutTables cuts the tables that have a partitioner, in as many partitions as
// the user says or a search begins with.
func (r *Replica) cutTables() error {
	free := func(e *Embedding) bool { return e.Partitioner.free() }
	switch some := slices.ContainsFunc(r.lanes[0].model.Embeddings, free); {
	case !some && r.job.config.partitions > 0:
		return fmt.Errorf("--partitions %d: no embedding of the model has a partitioner: give it trainer.Partitioner(1), or use --partition-bytes",
			r.job.config.partitions)
	case some && r.declared.Movable:
		r.declared.Pieces = r.pieces(r.newAllotment(), nil, 1)
	}
	return nil
}

// cut returns l with every table that has a partitioner in so many partitions.
func (l allotment) cut(r *Replica, parts int) allotment {
	l.parts = slices.Clone(l.parts)
	for i, e := range r.lanes[0].model.Embeddings {
		if e.Partitioner.free() {
			l.parts[i] = max(parts, e.Partitioner.least)
		}
	}
	return l
}

// bounds are the numbers of partitions that a search begins with, and those
// between which it looks: as many as owners, and none where no table has a
// partitioner.
func (l allotment) bounds(r *Replica) (start, least, most int) {
	for i, e := range r.lanes[0].model.Embeddings {
		if !e.Partitioner.free() {
			continue
		}
		owners := r.owners(l.routes[i])
		if least == 0 {
			least, most = e.Partitioner.least, mostPartitions*owners
		}
		least, most = min(least, e.Partitioner.least), min(most, e.Rows)
		start = max(start, owners)
	}
	return max(start, least), least, max(most, least)
}

// owners is how many tasks of a role may own rows.
func (r *Replica) owners(role cluster.Role) (n int) {
	for _, t := range r.declared.Owners {
		if t.Role == role {
			n++
		}
	}
	return n
}

// pieces cuts every table as l has it, so that all owners have about as much
// to carry. counts say by table how often the rows of each bucket travelled in
// so many steps, at least one; without them every row counts as one that
// travels. Pieces of other variables stay where they are.
func (r *Replica) pieces(l allotment, counts [][]float64, steps int) []owner.Piece {
	d := &r.declared
	var all []owner.Piece
	base := make([]float64, len(d.Owners))
	first := len(d.Variables) - len(r.tables)
	for _, p := range d.Pieces {
		if p.Variable < first {
			all = append(all, p)
			base[p.Owner] += r.denseLoad(p)
		}
	}
	var cut []owner.Piece
	var loads []float64
	for i := range r.tables {
		v := d.Variables[first+i]
		var often []float64
		if len(counts) > 0 {
			often = counts[i]
		}
		parts := min(l.parts[i], v.Shape[0])
		bounds := partition.Cut(v.Shape[0], parts, (crowding*v.Shape[0]+parts-1)/parts, often)
		for at, often := range partition.Loads(bounds, often) {
			p := owner.Piece{Variable: first + i, Offset: bounds[at], Count: bounds[at+1] - bounds[at]}
			cut, loads = append(cut, p), append(loads, often*rowBytes(v)/float64(steps))
		}
	}
	r.assign(l, cut, loads, base)
	all = append(all, cut...)
	slices.SortFunc(all, func(a, b owner.Piece) int {
		return cmp.Or(cmp.Compare(a.Variable, b.Variable), cmp.Compare(a.Offset, b.Offset))
	})
	return all
}

// assign gives pieces of tables to owners of the role that the table's route
// says, the heaviest first.
func (r *Replica) assign(l allotment, cut []owner.Piece, loads, base []float64) {
	first := len(r.declared.Variables) - len(r.tables)
	for _, role := range []cluster.Role{cluster.PS, cluster.Worker} {
		var owners, which []int
		for i, t := range r.declared.Owners {
			if t.Role == role {
				owners = append(owners, i)
			}
		}
		for i, p := range cut {
			if l.routes[p.Variable-first] == role {
				which = append(which, i)
			}
		}
		carried := pick(base, owners)
		chosen := partition.Assign(pick(loads, which), carried)
		if len(which) > 0 && slices.Min(carried) == slices.Max(carried) {
			chosen = partition.Keep(chosen, r.here(pick(cut, which), owners))
		}
		for i, at := range which {
			cut[at].Owner = owners[chosen[i]]
		}
	}
}

// here is how many rows of each piece each owner has now.
func (r *Replica) here(pieces []owner.Piece, owners []int) [][]float64 {
	rows := make([][]float64, len(pieces))
	for i, p := range pieces {
		rows[i] = make([]float64, len(owners))
		for _, now := range r.declared.Pieces {
			from, to := max(p.Offset, now.Offset), min(p.Offset+p.Count, now.Offset+now.Count)
			if at := slices.Index(owners, now.Owner); at >= 0 && now.Variable == p.Variable && from < to {
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

// denseLoad is what the owner of a dense piece sends and receives in a step,
// in bytes.
func (r *Replica) denseLoad(p owner.Piece) float64 {
	contributors := len(r.declared.Workers)
	if len(r.declared.Hosts) > 0 && r.declared.Owners[p.Owner].Role == cluster.PS {
		contributors = len(r.declared.Hosts)
	}
	return float64(2 * contributors * p.Count * r.declared.Variables[p.Variable].Dtype.Size())
}

// rowBytes is what the owner of a row sends and receives when it travels: it
// is pulled and pushed.
func rowBytes(v owner.Variable) float64 { return float64(2 * v.Shape[1] * v.Dtype.Size()) }
