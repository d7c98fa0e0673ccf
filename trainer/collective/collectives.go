package collective

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"

	"github.com/plx-run/plx/trainer/wire"
)

// The methods below are the collectives. Their slices are []float32, []float64
// or []int64, all of the same type in one call. nil is an empty slice of any
// type. A slice of another type is an error that breaks the group for all
// workers, because the other workers already wait for this worker.

// Broadcast copies the slice x of the worker with rank root to x of all other
// workers.
func (g *Group) Broadcast(ctx context.Context, x any, root int) error {
	return g.of(ctx, broadcast, root, x, nil, func(c *call, x, _ []byte) error { return c.broadcast(x, root) })
}

// Scatter distributes src of the worker with rank root. It cuts this slice
// into equal pieces and copies piece i to dst of the worker with rank i. All
// other workers may pass nil as src.
func (g *Group) Scatter(ctx context.Context, src, dst any, root int) error {
	return g.of(ctx, scatter, root, dst, src, func(c *call, dst, src []byte) error { return c.scatter(src, dst, root) })
}

// Gather copies src of every worker, in the order of ranks, to dst of the
// worker with rank root. src must have the same length on all workers. Workers
// other than root may pass nil as dst.
func (g *Group) Gather(ctx context.Context, src, dst any, root int) error {
	return g.of(ctx, gather, root, src, dst, func(c *call, src, dst []byte) error { return c.gather(src, dst, root) })
}

// AllGather copies src of all workers, in the order of ranks, to dst of each
// worker. src must have the same length on all workers. It may be the worker's
// own piece of dst.
func (g *Group) AllGather(ctx context.Context, src, dst any) error {
	return g.of(ctx, allGather, 0, src, dst, (*call).allGather)
}

// ReduceScatter adds src of all workers, element by element. Each worker gets
// one part of the sum in dst: the part that [Share] returns for its rank. dst
// may share memory with that part of src. All other parts of src stay
// unchanged.
func (g *Group) ReduceScatter(ctx context.Context, src, dst any) error {
	return g.of(ctx, reduceScatter, 0, src, dst, (*call).reduceScatter)
}

// AllReduce adds x of all workers, element by element, and stores the sum in x
// on every worker.
func (g *Group) AllReduce(ctx context.Context, x any) error {
	return g.of(ctx, allReduce, 0, x, nil, func(c *call, x, _ []byte) error { return c.allReduce(x) })
}

// Barrier returns once every worker has called it.
func (g *Group) Barrier(ctx context.Context) error {
	return g.run(ctx, signature{op: barrier}, func(c *call) error { return c.exchange(c.none(), c.none()) })
}

// AllGatherBytes returns src of all workers, in the order of ranks. The slices
// may differ in length. The parameter limit is the
// maximum length and must be the same on all workers. The caller owns the
// result.
func (g *Group) AllGatherBytes(ctx context.Context, src []byte, limit int) ([][]byte, error) {
	s := signature{op: allGatherBytes, of: byteType, count: uint64(max(limit, 0))}
	pieces := make([][]byte, len(g.config.Addrs))
	err := g.run(ctx, s, func(c *call) error { return c.allGatherBytes(src, limit, pieces) })
	if err != nil {
		return nil, err
	}
	return pieces, nil
}

// of runs the collective op. Its parameter x is a slice that must have the
// same length on all workers; the length of other may differ. do receives the
// memory of both slices.
func (g *Group) of(ctx context.Context, op operation, root int, x, other any, do func(c *call, x, other []byte) error) error {
	of, memory, err := memories(x, other)
	if err != nil {
		s := signature{op: op, of: byteType}
		return g.run(ctx, s, func(*call) error { return fmt.Errorf("%s: %w", operationNames[op], err) })
	}
	s := signature{op: op, of: of, root: uint32(root), count: uint64(len(memory[0]) / of.size())}
	return g.run(ctx, s, func(c *call) error { return do(c, memory[0], memory[1]) })
}

// memories returns the memory of the slices in values as bytes, and the type
// of their elements.
func memories(values ...any) (of dtype, all [][]byte, err error) {
	for _, v := range values {
		var t dtype
		var b []byte
		switch v := v.(type) {
		case nil:
		case []float32:
			t, b = float32Type, wire.Bytes(v)
		case []float64:
			t, b = float64Type, wire.Bytes(v)
		case []int64:
			t, b = int64Type, wire.Bytes(v)
		default:
			return 0, nil, fmt.Errorf("%T: want []float32, []float64 or []int64", v)
		}
		if of != noType && t != noType && of != t {
			return 0, nil, fmt.Errorf("slices of %s and of %s: want the same type", of, t)
		}
		of = max(of, t)
		all = append(all, b)
	}
	if of == noType {
		return 0, nil, errors.New("nil: want a slice, which may be empty")
	}
	return of, all, nil
}

// The collectives below move data without adding. Each method builds two lists
// with one slice for each other worker: the bytes to send to that worker, and
// the memory for the bytes from it.

// call is one collective operation, such as a broadcast, that is running on
// this worker.
type call struct {
	signature
	group *Group
	rank  int // rank of this worker
	world int // number of workers
}

// exchange sends to[i] to the worker of rank i and receives data from that
// worker into from[i], for every i except this worker's rank.
func (c *call) exchange(to, from [][]byte) error { return c.group.exchange(c.signature, to, from) }

// checkRoot returns an error if no worker has the rank root.
func (c *call) checkRoot(root int) error {
	if root < 0 || root >= c.world {
		return fmt.Errorf("%s: no worker has rank %d in a world of %d", operationNames[c.op], root, c.world)
	}
	return nil
}

// checkWhole returns an error unless whole is exactly as long as one piece for
// each worker. name is the name of the parameter whole for the error message.
func (c *call) checkWhole(name string, whole, piece []byte) error {
	if len(whole) != c.world*len(piece) {
		return fmt.Errorf("%s: %s has %d elements, want %d for each of %d workers", operationNames[c.op],
			name, len(whole)/c.of.size(), len(piece)/c.of.size(), c.world)
	}
	return nil
}

// none returns a list for exchange (its argument to or from) with an empty
// slice for each worker: nothing is sent or received.
func (c *call) none() [][]byte { return make([][]byte, c.world) }

// all returns a list for exchange (its argument to) by which this worker sends
// b to every other worker.
func (c *call) all(b []byte) [][]byte {
	to := c.none()
	for rank := range to {
		to[rank] = b
	}
	return to
}

// only returns a list for exchange (its argument to or from) in which only the
// worker with the given rank has data: it is sent b, or its data is received
// in b.
func (c *call) only(rank int, b []byte) [][]byte {
	to := c.none()
	to[rank] = b
	return to
}

// equal cuts whole into equal pieces, one for each worker.
func (c *call) equal(whole []byte) [][]byte {
	pieces := c.none()
	n := len(whole) / len(pieces)
	for rank := range pieces {
		pieces[rank] = whole[rank*n : (rank+1)*n : (rank+1)*n]
	}
	return pieces
}

// shares cuts x into one part for each worker, as [Share] does.
func (c *call) shares(x []byte) [][]byte {
	pieces := c.none()
	for rank := range pieces {
		pieces[rank] = share(x, c.of.size(), len(pieces), rank)
	}
	return pieces
}

// relayFrom is the number of workers at which a large broadcast begins to use
// two exchanges. In the first exchange, root sends each worker a share of the
// slice. In the second, each worker sends its share to all other workers. So
// root sends about twice the slice's bytes, whatever the number of workers.
const relayFrom = 4

// smallSize is a number of bytes. A collective with at most this much data
// sends all data to every worker in one exchange. With more data, it uses two
// exchanges and sends fewer bytes.
const smallSize = 64 << 10

func (c *call) broadcast(x []byte, root int) error {
	if err := c.checkRoot(root); err != nil {
		return err
	}
	if c.world < relayFrom || len(x) <= smallSize {
		if c.rank == root {
			return c.exchange(c.all(x), c.none())
		}
		return c.exchange(c.none(), c.only(root, x))
	}
	shares := c.shares(x)
	if c.rank == root {
		if err := c.exchange(shares, c.none()); err != nil {
			return err
		}
		return c.exchange(c.all(shares[c.rank]), c.none())
	}
	if err := c.exchange(c.none(), c.only(root, shares[c.rank])); err != nil {
		return err
	}
	to := c.all(shares[c.rank])
	to[root] = nil
	return c.exchange(to, shares)
}

func (c *call) scatter(from, into []byte, root int) error {
	if err := c.checkRoot(root); err != nil {
		return err
	}
	if c.rank != root {
		return c.exchange(c.none(), c.only(root, into))
	}
	if err := c.checkWhole("from", from, into); err != nil {
		return err
	}
	pieces := c.equal(from)
	copy(into, pieces[root])
	return c.exchange(pieces, c.none())
}

func (c *call) gather(from, into []byte, root int) error {
	if err := c.checkRoot(root); err != nil {
		return err
	}
	if c.rank != root {
		return c.exchange(c.only(root, from), c.none())
	}
	if err := c.checkWhole("into", into, from); err != nil {
		return err
	}
	pieces := c.equal(into)
	copy(pieces[root], from)
	return c.exchange(c.none(), pieces)
}

func (c *call) allGather(from, into []byte) error {
	if err := c.checkWhole("into", into, from); err != nil {
		return err
	}
	pieces := c.equal(into)
	copy(pieces[c.rank], from)
	return c.exchange(c.all(from), pieces)
}

// allGatherBytes fills pieces, which is indexed by rank. A first exchange
// sends the lengths, a second one the bytes.
func (c *call) allGatherBytes(from []byte, limit int, pieces [][]byte) error {
	if len(from) > limit {
		return fmt.Errorf("%s: a piece of %d bytes", c.signature, len(from))
	}
	sizes := c.equal(make([]byte, 8*c.world))
	size := binary.LittleEndian.AppendUint64(nil, uint64(len(from)))
	if err := c.exchange(c.all(size), sizes); err != nil {
		return err
	}
	for rank := range pieces {
		n := binary.LittleEndian.Uint64(sizes[rank])
		if n > uint64(limit) {
			return c.group.links[rank].Blame(fmt.Errorf("%s: a piece of %d bytes", c.signature, n))
		}
		pieces[rank] = make([]byte, n)
	}
	pieces[c.rank] = append([]byte{}, from...)
	return c.exchange(c.all(from), pieces)
}
