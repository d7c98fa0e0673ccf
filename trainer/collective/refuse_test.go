package collective

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/plx-run/plx/internal/test/patience"
	"github.com/plx-run/plx/trainer/cluster"
)

func TestAllWorkersReportDifferentCollectives(t *testing.T) {
	if testing.Short() {
		t.Skip("takes seconds")
	}
	type call func(ctx context.Context, g *Group) error
	sum := func(n int) call {
		return func(ctx context.Context, g *Group) error { return g.AllReduce(ctx, make([]float32, n)) }
	}
	bytes := func(limit int) call {
		return func(ctx context.Context, g *Group) error { _, err := g.AllGatherBytes(ctx, nil, limit); return err }
	}
	from := func(root int) call {
		return func(ctx context.Context, g *Group) error { return g.Broadcast(ctx, make([]int64, 3), root) }
	}
	scattered := func(ctx context.Context, g *Group) error {
		return g.Scatter(ctx, make([]float64, 12), make([]float64, 4), 0)
	}
	barrier := func(ctx context.Context, g *Group) error { return g.Barrier(ctx) }
	wide := func(ctx context.Context, g *Group) error { return g.AllReduce(ctx, make([]float64, 5)) }
	for _, test := range []struct {
		name     string
		two, one call
		what     []string
	}{
		{"operation", sum(5), barrier, []string{"AllReduce of 5 float32", "Barrier"}},
		{"length", sum(5), sum(6), []string{"AllReduce of 5 float32", "AllReduce of 6 float32"}},
		{"length of much", sum(1 << 20), sum(1<<20 + 1), []string{"1048576", "1048577"}},
		{"little and much", sum(1), sum(1 << 20), []string{"1048576", "AllReduce of 1 float32"}},
		{"type", sum(5), wide, []string{"5 float32", "5 float64"}},
		{"root", from(0), from(2), []string{"with root 0", "with root 2"}},
		{"limit", bytes(5), bytes(6), []string{"at most 5 bytes", "at most 6 bytes"}},
		{"scatter", scattered, from(1), []string{"Scatter of 4 float64 with root 0", "Broadcast of 3 int64"}},
	} {
		t.Run(test.name, func(t *testing.T) {
			groups := newWorld(t, 3, nil)
			errs := each(t, groups, func(ctx context.Context, g *Group, rank int) error {
				if err := g.Barrier(ctx); err != nil {
					return err
				}
				if rank == 1 {
					return test.one(ctx, g)
				}
				return test.two(ctx, g)
			})
			for rank, err := range errs {
				says(t, err, append(test.what, "collective 2 is", "worker:1", "same order")...)
				if rank == 1 && !strings.Contains(fmt.Sprint(err), "worker:0") && !strings.Contains(fmt.Sprint(err), "worker:2") {
					t.Errorf("names one worker: %v", err)
				}
			}
		})
	}
}

func TestAllWorkersReportWrongArguments(t *testing.T) {
	for _, test := range []struct {
		what string
		call func(ctx context.Context, g *Group) error
	}{
		{"into has 5 elements, want 2 for each of 3 workers", func(ctx context.Context, g *Group) error {
			return g.AllGather(ctx, make([]float32, 2), make([]float32, 5))
		}},
		{"into has 5 elements, want this worker's share of 3", func(ctx context.Context, g *Group) error {
			return g.ReduceScatter(ctx, make([]float32, 8), make([]float32, 5))
		}},
		{"from has 0 elements, want 1 for each of 3", func(ctx context.Context, g *Group) error {
			return g.Scatter(ctx, nil, make([]int64, 1), 1)
		}},
		{"into has 4 elements, want 1 for each of 3", func(ctx context.Context, g *Group) error {
			return g.Gather(ctx, make([]int64, 1), make([]int64, 4), 1)
		}},
		{"no worker has rank 3", func(ctx context.Context, g *Group) error { return g.Broadcast(ctx, []int64{1}, 3) }},
		{"no worker has rank -1", func(ctx context.Context, g *Group) error { return g.Gather(ctx, []int64{1}, nil, -1) }},
		{"a piece of 5 bytes", func(ctx context.Context, g *Group) error {
			_, err := g.AllGatherBytes(ctx, make([]byte, 5), 4)
			return err
		}},
		{"[]string: want []float32, []float64 or []int64", func(ctx context.Context, g *Group) error {
			return g.AllReduce(ctx, []string{"x"})
		}},
		{"slices of float32 and of int64", func(ctx context.Context, g *Group) error {
			return g.AllGather(ctx, []float32{1}, []int64{1, 2, 3})
		}},
		{"nil: want a slice", func(ctx context.Context, g *Group) error { return g.Scatter(ctx, nil, nil, 0) }},
	} {
		began := time.Now()
		errs := each(t, newWorld(t, 3, nil), func(ctx context.Context, g *Group, rank int) error {
			if rank == 1 {
				return test.call(ctx, g)
			}
			return g.Barrier(ctx)
		})
		says(t, errs[1], test.what)
		blames(t, errs[0], 1, test.what)
		blames(t, errs[2], 1, test.what)
		if took := time.Since(began); took > patience.Limit/2 {
			t.Errorf("%s: took %v", test.what, took)
		}
	}
}

func TestInvalidConfigFails(t *testing.T) {
	for what, change := range map[string]func(*Config){
		"rank 2 in a world of 2":      func(c *Config) { c.Rank += 2 },
		"no listener in a world of 2": func(c *Config) { c.Listener = nil },
		"of 3 workers has rank":       func(c *Config) { c.Peers.Workers = 3 },
		"worker:7 of 2 workers":       func(c *Config) { c.Peers.Self.Index = 7 },
		"ps:0 of 2 workers":           func(c *Config) { c.Peers.Self.Role = cluster.PS },
		"rank 0 in a world of 0":      func(c *Config) { c.Addrs = nil },
		"rank -1 in a world of 2":     func(c *Config) { c.Rank = -1 },
	} {
		c := newWorld(t, 2, nil)[0].config
		change(&c)
		g := New(c)
		says(t, g.AllReduce(t.Context(), make([]float32, 3)), what)
		g.Close()
	}
}
