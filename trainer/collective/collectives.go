package collective

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"

	"github.com/plx-run/plx/trainer/wire"
)

// The methods below are the collectives. Their slices are []float32, []float64
// or []int64, of one type per call. nil is an empty slice of any type. A slice
// of another type is an error that breaks the group for all workers, because
// the others already wait for this one.

// Broadcast copies the slice x of the worker with rank root to x of all other
// workers.
func (g *Group) Broadcast(ctx context.Context, x any, root int) error {
	return g.of(ctx, broadcast, root, x, nil, func(c *call, x, _ []byte) error { return c.broadcast(x, root) })
}

// Scatter distributes a slice. It cuts the argument from of the worker with
// rank root into equal pieces, and copies piece i to the argument into of the
// worker with rank i. All other workers may pass nil as from.
func (g *Group) Scatter(ctx context.Context, from, into any, root int) error {
	return g.of(ctx, scatter, root, into, from, func(c *call, into, from []byte) error { return c.scatter(from, into, root) })
}

// Gather collects slices. It copies the argument from of every worker, in the
// order of ranks, to the argument into of the worker with rank root. All from
// have the same length. Workers other than root may pass nil as into.
func (g *Group) Gather(ctx context.Context, from, into any, root int) error {
	return g.of(ctx, gather, root, from, into, func(c *call, from, into []byte) error { return c.gather(from, into, root) })
}

// AllGather collects slices on every worker. It copies the argument from of
// all workers, in the order of ranks, to the argument into of each. All from
// have the same length. A worker's from may be its own piece of into.
func (g *Group) AllGather(ctx context.Context, from, into any) error {
	return g.of(ctx, allGather, 0, from, into, (*call).allGather)
}

// ReduceScatter adds the argument from of all workers, element by element.
// Each worker gets one part of the sum in its argument into: the part that
// [Share] returns for its rank. into may share memory with that part of from.
// The rest of from does not change.
func (g *Group) ReduceScatter(ctx context.Context, from, into any) error {
	return g.of(ctx, reduceScatter, 0, from, into, (*call).reduceScatter)
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

// AllGatherBytes returns the from slices of all workers, in the order of
// ranks. They may differ in length. limit is the maximum length and must be
// the same on all workers. The caller owns the result.
func (g *Group) AllGatherBytes(ctx context.Context, from []byte, limit int) ([][]byte, error) {
	s := signature{op: allGatherBytes, of: byteType, count: uint64(max(limit, 0))}
	pieces := make([][]byte, len(g.config.Addrs))
	err := g.run(ctx, s, func(c *call) error { return c.allGatherBytes(from, limit, pieces) })
	if err != nil {
		return nil, err
	}
	return pieces, nil
}

// of runs a collective on the slices x and other. Only x must have the same
// length on all workers.
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

// The collectives below move data without adding. Each says which bytes this
// worker sends to every other worker, and where it stores the bytes that
// arrive.

// call is one running collective on this worker.
type call struct {
	signature
	group *Group
	rank  int // rank of this worker
	world int // number of workers
}

// exchange sends to[i] to the worker of rank i and receives data of that
// worker into from[i], for all other workers.
func (c *call) exchange(to, from [][]byte) error { return c.group.exchange(c.signature, to, from) }

// checkRoot returns an error if no worker has the rank root.
func (c *call) checkRoot(root int) error {
	if root < 0 || root >= c.world {
		return fmt.Errorf("%s: no worker has rank %d in a world of %d", operationNames[c.op], root, c.world)
	}
	return nil
}

// checkWhole returns an error unless whole is as long as one piece for each
// worker.
func (c *call) checkWhole(name string, whole, piece []byte) error {
	if len(whole) != c.world*len(piece) {
		return fmt.Errorf("%s: %s has %d elements, want %d for each of %d workers", operationNames[c.op],
			name, len(whole)/c.of.size(), len(piece)/c.of.size(), c.world)
	}
	return nil
}

// none returns the data of an exchange in which nothing is sent or received:
// an empty slice for each worker.
func (c *call) none() [][]byte { return make([][]byte, c.world) }

// all returns the data of an exchange in which every worker is sent b.
func (c *call) all(b []byte) [][]byte {
	to := c.none()
	for rank := range to {
		to[rank] = b
	}
	return to
}

// only returns the data of an exchange in which b is sent to, or received
// from, one worker only.
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

// relayFrom is the number of workers from which on a large broadcast takes two
// exchanges: root sends each worker a share, and each worker sends its share
// to all others. So root sends the slice about twice instead of once per
// worker.
const relayFrom = 4

// smallSize is a limit in bytes. Up to it, a collective sends all data to
// every worker in one exchange. Above it, a collective takes two exchanges and
// sends fewer bytes.
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

// allGatherBytes fills pieces by rank. A first exchange sends the lengths, a
// second one the bytes.
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
