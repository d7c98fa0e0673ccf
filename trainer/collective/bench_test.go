package collective

import (
	"context"
	"fmt"
	"io"
	"net"
	"testing"
	"time"
)

// BenchmarkAllReduce prints the data rate of each connection, S/t * 2(n-1)/n,
// and its ratio to the rate of a raw TCP connection, measured right before and
// after.
func BenchmarkAllReduce(b *testing.B) {
	for _, world := range []int{2, 4} {
		for _, size := range []int{4 << 10, 1 << 20, 16 << 20} {
			b.Run(fmt.Sprintf("n=%d/%dKiB", world, size>>10), func(b *testing.B) {
				groups := connected(b, world, nil)
				raw := rawRate(b)
				b.ResetTimer()
				must(b, groups, func(ctx context.Context, g *Group, rank int) error {
					x := make([]float32, size/4)
					for range b.N {
						if err := g.AllReduce(ctx, x); err != nil {
							return err
						}
					}
					return nil
				})
				b.StopTimer()
				raw = (raw + rawRate(b)) / 2
				bus := float64(size) * float64(b.N) / b.Elapsed().Seconds() * 2 * float64(world-1) / float64(world)
				b.ReportMetric(bus/1e6, "busMB/s")
				b.ReportMetric(raw/1e6, "rawMB/s")
				b.ReportMetric(bus/raw, "bus/raw")
			})
		}
	}
}

// rawRate returns the rate of a raw TCP connection in bytes per second,
// measured with half a gigabyte.
func rawRate(b *testing.B) float64 {
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		b.Fatal(err)
	}
	defer ln.Close()
	const block, blocks = 4 << 20, 128
	sent := make(chan error, 1)
	go func() {
		conn, err := net.Dial("tcp", ln.Addr().String())
		if err == nil {
			defer conn.Close()
			x := make([]byte, block)
			for range blocks {
				if _, err = conn.Write(x); err != nil {
					break
				}
			}
		}
		sent <- err
	}()
	conn, err := ln.Accept()
	if err != nil {
		b.Fatal(err)
	}
	defer conn.Close()
	began := time.Now()
	into := make([]byte, block)
	for range blocks {
		if _, err := io.ReadFull(conn, into); err != nil {
			b.Fatal(err)
		}
	}
	took := time.Since(began)
	if err := <-sent; err != nil {
		b.Fatal(err)
	}
	return block * blocks / took.Seconds()
}
