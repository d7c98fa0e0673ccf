package collective

import (
	"context"
	"errors"
	"fmt"
)

// The methods below are the collectives. Slices are []float32, []float64 or
// []int64, the same in all arguments. Other types are refused, which breaks the
// group, because the other workers wait. nil is an empty slice of any type.

// Broadcast fills x on every worker with root's.
func (g *Group) Broadcast(ctx context.Context, x any, root int) error {
	return g.of(ctx, broadcast, root, x, nil, func(c *call, x, _ []byte) error { return c.broadcast(x, root) })
}

// Scatter gives each worker its piece of root's from: rank i gets piece i, of
// len(into) elements. On the other workers from may be nil.
func (g *Group) Scatter(ctx context.Context, from, into any, root int) error {
	return g.of(ctx, scatter, root, into, from, func(c *call, into, from []byte) error { return c.scatter(from, into, root) })
}

// Gather puts every worker's from, of the same length, into root's into, by
// rank. On the other workers into may be nil.
func (g *Group) Gather(ctx context.Context, from, into any, root int) error {
	return g.of(ctx, gather, root, from, into, func(c *call, from, into []byte) error { return c.gather(from, into, root) })
}

// AllGather puts every worker's from, of the same length, into every worker's
// into, by rank. from may be this worker's piece of into.
func (g *Group) AllGather(ctx context.Context, from, into any) error {
	return g.of(ctx, allGather, 0, from, into, (*call).allGather)
}

// ReduceScatter puts the sum of every worker's from, of the same length, into
// into: on each worker the part that [Share] names. into may be that part of
// from; the rest of from does not change.
func (g *Group) ReduceScatter(ctx context.Context, from, into any) error {
	return g.of(ctx, reduceScatter, 0, from, into, (*call).reduceScatter)
}

// AllReduce replaces x on every worker by the sum over all workers.
func (g *Group) AllReduce(ctx context.Context, x any) error {
	return g.of(ctx, allReduce, 0, x, nil, func(c *call, x, _ []byte) error { return c.allReduce(x) })
}

// Barrier returns once every worker has called it.
func (g *Group) Barrier(ctx context.Context) error {
	return g.run(ctx, signature{op: barrier}, func(c *call) error { return c.exchange(c.none(), c.none()) })
}

// AllGatherBytes returns what each worker gives as from, by rank: pieces of
// any length up to limit, which is the same on all workers. The memory is the
// caller's.
func (g *Group) AllGatherBytes(ctx context.Context, from []byte, limit int) ([][]byte, error) {
	s := signature{op: allGatherBytes, of: byteType, count: uint64(max(limit, 0))}
	pieces := make([][]byte, len(g.config.Addrs))
	err := g.run(ctx, s, func(c *call) error { return c.allGatherBytes(from, limit, pieces) })
	if err != nil {
		return nil, err
	}
	return pieces, nil
}

// of runs a collective on the memory of x, whose length is the same on all
// workers, and of other.
func (g *Group) of(ctx context.Context, op operation, root int, x, other any, do func(c *call, x, other []byte) error) error {
	of, memory, err := memories(x, other)
	if err != nil {
		s := signature{op: op, of: byteType}
		return g.run(ctx, s, func(*call) error { return fmt.Errorf("%s: %w", operationNames[op], err) })
	}
	s := signature{op: op, of: of, root: uint32(root), count: uint64(len(memory[0]) / of.size())}
	return g.run(ctx, s, func(c *call) error { return do(c, memory[0], memory[1]) })
}

// memories returns the memory of values and the type of their elements.
func memories(values ...any) (of dtype, all [][]byte, err error) {
	for _, v := range values {
		t, b, ok := slice(v)
		if !ok {
			return 0, nil, fmt.Errorf("%T: want []float32, []float64 or []int64", v)
		}
		if of != noType && t != noType && of != t {
			return 0, nil, fmt.Errorf("slices of %s and of %s: want the same type", of, t)
		}
		of = max(of, t)
		all = append(all, b)
	}
	if of == noType {
		return 0, nil, errors.New("nil: want a slice, if an empty one")
	}
	return of, all, nil
}

func slice(v any) (of dtype, b []byte, ok bool) {
	switch v := v.(type) {
	case nil:
		return noType, nil, true
	case []float32:
		return float32Type, memory(v), true
	case []float64:
		return float64Type, memory(v), true
	case []int64:
		return int64Type, memory(v), true
	}
	return 0, nil, false
}
