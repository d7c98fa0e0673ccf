package owner

import (
	"cmp"
	"fmt"
	"slices"

	"github.com/plx-run/plx/trainer/cluster"
)

// Architecture names where variables are owned.
type Architecture string

// The architectures.
const (
	Servers   Architecture = "ps"        // all on servers
	AllReduce Architecture = "allreduce" // all on workers
	Hybrid    Architecture = "hybrid"    // sparse on servers, dense on workers
)

// Place fills Owners and Pieces for so many servers; Workers, Variables and
// BucketBytes must be there. Variables above limit bytes are cut over the
// servers, 0 means DefaultLimit. Tasks that would own nothing are left out;
// where variables are Movable all servers stay, and all workers unless the
// architecture is ps.
func (d *Declaration) Place(a Architecture, servers, limit int) error {
	if err := d.placeable(a, servers); err != nil {
		return err
	}
	var pieces []Piece // owners: servers first, then workers
	limit = cmp.Or(limit, DefaultLimit)
	switch a {
	case Servers:
		pieces = PlaceServers(d.Variables, servers, limit)
	case AllReduce:
		servers = 0
		pieces = PlaceWorkers(d.Variables, len(d.Workers), d.BucketBytes)
	case Hybrid:
		pieces = d.placeHybrid(servers, limit)
	}
	d.settle(pieces, servers, a)
	return nil
}

func (d *Declaration) placeable(a Architecture, servers int) error {
	for _, v := range d.Variables {
		if err := v.check(); err != nil {
			return err
		}
	}
	sparse := slices.ContainsFunc(d.Variables, func(v Variable) bool { return v.Sparse != nil })
	switch {
	case a != Servers && a != AllReduce && a != Hybrid:
		return fmt.Errorf("architecture %q: want ps, allreduce or hybrid", a)
	case servers < 1 && (a == Servers || a == Hybrid && sparse):
		return fmt.Errorf("architecture %s: no server to own variables; choose allreduce", a)
	case len(d.Workers) == 0:
		return fmt.Errorf("architecture %s: no workers", a)
	}
	return nil
}

// placeHybrid places either kind as if the other were not there.
func (d *Declaration) placeHybrid(servers, limit int) []Piece {
	var kinds [2][]Variable
	var original [2][]int
	for i, v := range d.Variables {
		kind := 0
		if v.Sparse != nil {
			kind = 1
		}
		kinds[kind], original[kind] = append(kinds[kind], v), append(original[kind], i)
	}
	dense := PlaceWorkers(kinds[0], len(d.Workers), d.BucketBytes)
	for i := range dense {
		dense[i].Owner += servers
	}
	pieces := [2][]Piece{dense, nil}
	if len(kinds[1]) > 0 {
		pieces[1] = PlaceServers(kinds[1], servers, limit)
	}
	var all []Piece
	for kind, list := range pieces {
		for _, p := range list {
			p.Variable = original[kind][p.Variable]
			all = append(all, p)
		}
	}
	return all
}

// settle names the owners and leaves out those without a piece that will not
// get one later.
func (d *Declaration) settle(pieces []Piece, servers int, a Architecture) {
	d.Owners, d.Pieces = nil, pieces
	index := map[int]int{}
	owners := map[int]bool{}
	for _, p := range pieces {
		owners[p.Owner] = true
	}
	for i := range servers + len(d.Workers) {
		if d.Movable && (i < servers || a != Servers) {
			owners[i] = true
		}
	}
	if len(owners) == 0 {
		owners[0] = true // somebody must have the tally
	}
	for i := range servers + len(d.Workers) {
		if !owners[i] {
			continue
		}
		index[i] = len(d.Owners)
		task := worker(i - servers)
		if i < servers {
			task = cluster.Task{Role: cluster.PS, Index: i}
		}
		d.Owners = append(d.Owners, task)
	}
	for i := range d.Pieces {
		d.Pieces[i].Owner = index[d.Pieces[i].Owner]
	}
}
