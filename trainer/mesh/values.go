package mesh

import (
	"context"
	"errors"
	"fmt"
)

// The methods below are the functions of the same name for programs that have
// slices of a type that they do not know: []float32, []float64 or []int64, the
// same in all arguments. Others are refused, and break the mesh, as the other
// workers wait. nil is an empty slice of any type.

// Broadcast is [Broadcast] for a slice of any Number.
func (m *Mesh) Broadcast(ctx context.Context, x any, root int) error {
	of, b, err := memories(x)
	if err != nil {
		return m.refuse(ctx, broadcast, err)
	}
	return m.broadcast(ctx, of, b[0], root)
}

// Scatter is [Scatter] for slices of any Number.
func (m *Mesh) Scatter(ctx context.Context, from, into any, root int) error {
	of, b, err := memories(from, into)
	if err != nil {
		return m.refuse(ctx, scatter, err)
	}
	return m.scatter(ctx, of, b[0], b[1], root)
}

// Gather is [Gather] for slices of any Number.
func (m *Mesh) Gather(ctx context.Context, from, into any, root int) error {
	of, b, err := memories(from, into)
	if err != nil {
		return m.refuse(ctx, gather, err)
	}
	return m.gather(ctx, of, b[0], b[1], root)
}

// AllGather is [AllGather] for slices of any Number.
func (m *Mesh) AllGather(ctx context.Context, from, into any) error {
	of, b, err := memories(from, into)
	if err != nil {
		return m.refuse(ctx, allGather, err)
	}
	return m.allGather(ctx, of, b[0], b[1])
}

// ReduceScatter is [ReduceScatter] for slices of any Number.
func (m *Mesh) ReduceScatter(ctx context.Context, from, into any) error {
	of, b, err := memories(from, into)
	if err != nil {
		return m.refuse(ctx, reduceScatter, err)
	}
	return m.reduceScatter(ctx, of, b[0], b[1])
}

// AllReduce is [AllReduce] for a slice of any Number.
func (m *Mesh) AllReduce(ctx context.Context, x any) error {
	of, b, err := memories(x)
	if err != nil {
		return m.refuse(ctx, allReduce, err)
	}
	return m.allReduce(ctx, of, b[0])
}

// refuse tells all workers of arguments that are none.
func (m *Mesh) refuse(ctx context.Context, op operation, why error) error {
	_, err := m.run(ctx, signature{op: op, of: byteType}, func(*round) error { return why })
	return err
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
