package layout

import (
	"cmp"
	"fmt"

	"github.com/plx-run/plx/trainer/cluster"
	"github.com/plx-run/plx/trainer/policy"
)

// placer fills Holders and Pieces of a declaration.
type placer struct {
	d       *Declaration
	a       policy.Architecture
	servers int // that hold something
}

func (p placer) place(limit int) error {
	if err := p.check(); err != nil {
		return err
	}
	if p.a.OnlyWorkers() {
		p.servers = 0
	}
	onWorkers := p.home(policy.OnWorkers, func(variables []Variable) []Piece {
		return placeWorkers(variables, len(p.d.Workers), p.d.BucketBytes)
	})
	for i := range onWorkers {
		onWorkers[i] = onWorkers[i].on(onWorkers[i].Holder + p.servers) // servers come first
	}
	onServers := p.home(policy.OnServers, func(variables []Variable) []Piece {
		return placeServers(variables, p.servers, cmp.Or(limit, DefaultLimit))
	})
	p.settle(append(onWorkers, onServers...))
	return nil
}

func (p placer) check() error {
	var sparse, dense bool
	for _, v := range p.d.Variables {
		if err := v.check(); err != nil {
			return err
		}
		sparse, dense = sparse || v.Sparse != nil, dense || v.Sparse == nil
	}
	switch {
	case p.servers < 1 && (p.a.OnlyServers() || p.a.Uses(policy.OnServers, sparse, dense)):
		return fmt.Errorf("architecture %s: no server to hold variables; choose allreduce", p.a)
	case len(p.d.Workers) == 0:
		return fmt.Errorf("architecture %s: no workers", p.a)
	}
	return nil
}

// home places the variables of one home as if there were no others.
func (p placer) home(h policy.Home, place func([]Variable) []Piece) []Piece {
	var variables []Variable
	var original []int
	for i, v := range p.d.Variables {
		if p.a.Home(v.Sparse != nil) == h {
			variables, original = append(variables, v), append(original, i)
		}
	}
	if len(variables) == 0 {
		return nil
	}
	pieces := place(variables)
	for i := range pieces {
		pieces[i] = pieces[i].of(original[pieces[i].Variable])
	}
	return pieces
}

// settle names the holders and leaves out those without a piece that will not
// get one later.
func (p placer) settle(pieces []Piece) {
	d, servers := p.d, p.servers
	d.Holders, d.Pieces = nil, pieces
	index := map[int]int{}
	holds := map[int]bool{}
	for _, piece := range pieces {
		holds[piece.Holder] = true
	}
	for i := range servers + len(d.Workers) {
		if d.Movable && (i < servers || !p.a.OnlyServers()) {
			holds[i] = true
		}
	}
	if len(holds) == 0 {
		holds[0] = true // somebody must hold the loss
	}
	for i := range servers + len(d.Workers) {
		if !holds[i] {
			continue
		}
		index[i] = len(d.Holders)
		task := cluster.Task{Role: cluster.Worker, Index: i - servers}
		if i < servers {
			task = cluster.Task{Role: cluster.PS, Index: i}
		}
		d.Holders = append(d.Holders, task)
	}
	for i := range d.Pieces {
		d.Pieces[i] = d.Pieces[i].on(index[d.Pieces[i].Holder])
	}
}
