package owner

import (
	"context"
	"fmt"
	"sync"
	"testing"
)

func BenchmarkStep(b *testing.B) {
	for _, c := range []struct {
		a       Architecture
		workers int
		servers int
	}{{AllReduce, 1, 0}, {AllReduce, 2, 0}, {Servers, 2, 2}, {AllReduce, 4, 0}} {
		b.Run(fmt.Sprint(c.a, c.workers), func(b *testing.B) {
			d := example(c.workers, c.workers)
			d.Variables = nil
			for i := range 8 {
				d.Variables = append(d.Variables, Variable{Name: fmt.Sprint("v", i), Dtype: Float32, Shape: []int{1 << 18}})
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
