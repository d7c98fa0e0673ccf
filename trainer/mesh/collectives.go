package mesh

import "context"

// Broadcast fills x on every worker with root's.
func Broadcast[T Number](ctx context.Context, m *Mesh, x []T, root int) error {
	return m.broadcast(ctx, typeOf[T](), memory(x), root)
}

// Scatter gives each worker its piece of root's from: piece i, of len(into)
// elements, to rank i. On the others from is not looked at.
func Scatter[T Number](ctx context.Context, m *Mesh, from, into []T, root int) error {
	return m.scatter(ctx, typeOf[T](), memory(from), memory(into), root)
}

// Gather puts every worker's from, of the same length, into root's into, by
// rank. On the others into is not looked at.
func Gather[T Number](ctx context.Context, m *Mesh, from, into []T, root int) error {
	return m.gather(ctx, typeOf[T](), memory(from), memory(into), root)
}

// AllGather puts every worker's from, of the same length, into every worker's
// into, by rank. from may be this worker's piece of into.
func AllGather[T Number](ctx context.Context, m *Mesh, from, into []T) error {
	return m.allGather(ctx, typeOf[T](), memory(from), memory(into))
}

// ReduceScatter puts the sum of every worker's from, of the same length, into
// into: on each worker the part that [Share] says. into may be that part of
// from; the rest of from is not changed.
func ReduceScatter[T Number](ctx context.Context, m *Mesh, from, into []T) error {
	return m.reduceScatter(ctx, typeOf[T](), memory(from), memory(into))
}

// AllReduce replaces x on every worker by the sum over all workers.
func AllReduce[T Number](ctx context.Context, m *Mesh, x []T) error {
	return m.allReduce(ctx, typeOf[T](), memory(x))
}

// Barrier returns once every worker has called it.
func (m *Mesh) Barrier(ctx context.Context) error { return m.barrier(ctx) }
