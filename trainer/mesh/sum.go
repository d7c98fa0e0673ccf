package mesh

import (
	"context"
	"fmt"
)

// The collectives that add. Little is added by everyone that needs the sum,
// much by the worker whose share it is; the order is the same.

func (m *Mesh) reduceScatter(ctx context.Context, of dtype, from, into []byte) error {
	little := len(from) <= m.world()*eagerSize/2
	r, err := m.run(ctx, sign(reduceScatter, of, from, 0), func(r *round) error {
		mine := r.share(from, m.config.Rank)
		if len(into) != len(mine) {
			return fmt.Errorf("into has %d elements, want this worker's share of %d", len(into)/of.size(), len(mine)/of.size())
		}
		if !little {
			r.reduce(from, into)
			return nil
		}
		for other, f := range r.flows {
			if f != nil {
				f.eager, f.told = r.share(from, other), len(mine)
			}
		}
		return nil
	})
	if err == nil && little {
		r.sum(r.share(from, m.config.Rank), into)
	}
	return err
}

func (m *Mesh) allReduce(ctx context.Context, of dtype, x []byte) error {
	little := len(x)*(m.world()-1) <= eagerSize
	r, err := m.run(ctx, sign(allReduce, of, x, 0), func(r *round) error {
		if !little {
			mine := r.share(x, m.config.Rank)
			r.reduce(x, mine)
			for other, f := range r.flows {
				if f != nil {
					f.out = append(f.out, outflow{memory: mine, gated: bySum})
					f.in = append(f.in, inflow{memory: r.share(x, other), sent: true})
				}
			}
			return nil
		}
		for _, f := range r.flows {
			if f != nil {
				f.eager, f.told = x, len(x)
			}
		}
		return nil
	})
	if err == nil && little {
		r.sum(x, x)
	}
	return err
}

func (r *round) share(x []byte, rank int) []byte {
	return share(x, r.of.size(), len(r.flows), rank)
}

// reduce plans that this worker's share of all workers' from is added into out
// and that the others get their shares of its own.
func (r *round) reduce(from, out []byte) {
	m := r.mesh
	r.reducer, m.scratch = newReducer(r.of, m.config.Rank, m.world(), r.share(from, m.config.Rank), out, m.scratch)
	for other, f := range r.flows {
		if f != nil {
			f.out = []outflow{{memory: r.share(from, other), gated: byGrant}}
			f.in = []inflow{{add: len(out)}}
		}
	}
}

// sum adds what came with the announcements to mine.
func (r *round) sum(mine, out []byte) {
	parts := make([][]byte, len(r.flows))
	for rank, f := range r.flows {
		if f == nil {
			parts[rank] = mine
		} else {
			parts[rank] = r.came(rank)
		}
	}
	treeSum(r.of, parts, r.mesh.config.Rank, out)
}
