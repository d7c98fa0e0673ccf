package client

import (
	"testing"

	"github.com/plx-run/plx/trainer/layout"
	"github.com/plx-run/plx/trainer/optimizer"
	"github.com/plx-run/plx/trainer/policy"
)

// BenchmarkRepartition moves two tables of 100,000 x 128 numbers between four
// servers, from 4 pieces to 8 and back. A ninth of the rows was updated. Every
// row moves to another server.
func BenchmarkRepartition(b *testing.B) {
	d := movableTables(1, 1, optimizer.Adagrad)
	d.Clip = 0
	d.Variables = nil
	for _, name := range []string{"in", "out"} {
		d.Variables = append(d.Variables, layout.Variable{Name: name, Dtype: layout.Float32, Shape: []int{100_000, 128},
			Sparse: &layout.Sparse{First: layout.RowInit{Kind: "uniform", A: -1, B: 1, Seed: 3}}})
	}
	j := newJob(b, d, policy.Servers, 4)
	members := j.connect(b)
	_, errs := step(members, 0, 0.1)
	must(b, errs)
	spread := func(parts, shift int) (pieces []layout.Piece) {
		for i, v := range j.d.Variables {
			for n, p := range v.Partition(i, parts) {
				p.Holder = (n*4/parts + shift) % 4
				pieces = append(pieces, p)
			}
		}
		return pieces
	}
	moves := [][]layout.Piece{spread(8, 1), spread(4, 0)}
	rows := len(touched(j.d.Variables[0], 0, 0)) + len(touched(j.d.Variables[1], 0, 0))
	b.SetBytes(int64(rows * 2 * 128 * 4)) // every row moves, together with one number of optimiser state per element
	for i := 0; b.Loop(); i++ {
		must(b, repartition(members, moves[i%2]))
	}
	leave(b, j, members)
}
