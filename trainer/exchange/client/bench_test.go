package client

import (
	"context"
	"fmt"
	"sync"
	"testing"

	"github.com/plx-run/plx/trainer/layout"
	"github.com/plx-run/plx/trainer/optimizer"
	"github.com/plx-run/plx/trainer/policy"
)

func BenchmarkStep(b *testing.B) {
	for _, c := range []struct {
		a       policy.Architecture
		workers int
		servers int
	}{{policy.AllReduce, 1, 0}, {policy.AllReduce, 2, 0}, {policy.Servers, 2, 2}, {policy.AllReduce, 4, 0}} {
		b.Run(fmt.Sprint(c.a, c.workers), func(b *testing.B) {
			d := example(c.workers, c.workers)
			d.Variables = nil
			for i := range 8 {
				d.Variables = append(d.Variables, layout.Variable{Name: fmt.Sprint("v", i), Dtype: layout.Float32, Shape: []int{1 << 18}})
			}
			j := newJob(b, d, c.a, c.servers)
			members := j.connect(b)
			b.SetBytes(8 << 20)
			b.ReportAllocs()
			for b.Loop() {
				var stepping sync.WaitGroup
				for rank, m := range members {
					stepping.Go(func() {
						m.Begin(0.1)
						for i := len(d.Variables) - 1; i >= 0; i-- {
							m.Contribute(rank, i)
						}
						if _, err := m.Finish(context.Background(), [][]float64{{1}}); err != nil {
							b.Error(err)
						}
					})
				}
				stepping.Wait()
			}
		})
	}
}

// BenchmarkRepartition moves two tables of 100,000 x 128 numbers, of whose
// rows a ninth was updated, between four servers: from 4 pieces to 8 and back,
// every row to another server.
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
	b.SetBytes(int64(rows * 2 * 128 * 4)) // every row changes its server, with one slot
	for i := 0; b.Loop(); i++ {
		must(b, repartition(members, moves[i%2]))
	}
	leave(b, j, members)
}
