package mesh

import (
	"context"
	"fmt"
)

// The collectives on bytes: what each pair of workers exchanges. It goes with
// the announcements where it is little, else in chunks once both have
// announced.

// sign is the signature of an operation on x.
func sign(op operation, of dtype, x []byte, root int) signature {
	return signature{op: op, of: of, root: uint32(root), count: uint64(len(x) / of.size())}
}

// checkRoot is for operations with one.
func (m *Mesh) checkRoot(root int) error {
	if root < 0 || root >= m.world() {
		return fmt.Errorf("no worker has rank %d in a world of %d", root, m.world())
	}
	return nil
}

// checkWhole wants whole to hold a piece for each worker.
func (m *Mesh) checkWhole(of dtype, name string, whole, piece []byte) error {
	if len(whole) != m.world()*len(piece) {
		return fmt.Errorf("%s has %d elements, want %d for each of %d workers",
			name, len(whole)/of.size(), len(piece)/of.size(), m.world())
	}
	return nil
}

// pieceOf is a rank's piece of n bytes.
func pieceOf(whole []byte, n, rank int) []byte { return whole[rank*n : (rank+1)*n : (rank+1)*n] }

func (m *Mesh) barrier(ctx context.Context) error {
	_, err := m.run(ctx, signature{op: barrier}, func(*round) error { return nil })
	return err
}

// relayFrom is the world size from which on the others pass on what they get
// from the root of a broadcast: so it sends everything about once and not to
// each of them.
const relayFrom = 4

func (m *Mesh) broadcast(ctx context.Context, of dtype, x []byte, root int) error {
	little := len(x) <= eagerSize
	_, err := m.run(ctx, sign(broadcast, of, x, root), func(r *round) error {
		if err := m.checkRoot(root); err != nil {
			return err
		}
		if !little && m.world() >= relayFrom {
			r.relay(x, root)
			return nil
		}
		for other, f := range r.flows {
			switch {
			case f == nil:
			case m.config.Rank == root:
				f.give(x, little)
			case other == root:
				f.take(x, little)
			}
		}
		return nil
	})
	return err
}

// relay plans a broadcast in which the root sends each other worker its share
// of x, to be passed on as it comes, and the root's own share to all.
func (r *round) relay(x []byte, root int) {
	part := func(rank int) []byte { return share(x, r.of.size(), len(r.flows), rank) }
	mine := part(r.mesh.config.Rank)
	for other, f := range r.flows {
		switch {
		case f == nil:
		case r.mesh.config.Rank == root:
			f.out = []outflow{{memory: part(other)}, {memory: mine}}
		case other == root:
			f.in = []inflow{{memory: mine, relay: true}, {memory: part(root)}}
		default:
			f.out = []outflow{{memory: mine, gated: byRelay}}
			f.in = []inflow{{memory: part(other)}}
		}
	}
}

func (m *Mesh) scatter(ctx context.Context, of dtype, from, into []byte, root int) error {
	little := len(into) <= eagerSize
	_, err := m.run(ctx, sign(scatter, of, into, root), func(r *round) error {
		if err := m.checkRoot(root); err != nil {
			return err
		}
		if m.config.Rank != root {
			r.flows[root].take(into, little)
			return nil
		}
		if err := m.checkWhole(of, "from", from, into); err != nil {
			return err
		}
		for other, f := range r.flows {
			if f != nil {
				f.give(pieceOf(from, len(into), other), little)
			}
		}
		copy(into, pieceOf(from, len(into), root))
		return nil
	})
	return err
}

func (m *Mesh) gather(ctx context.Context, of dtype, from, into []byte, root int) error {
	little := len(from) <= eagerSize
	_, err := m.run(ctx, sign(gather, of, from, root), func(r *round) error {
		if err := m.checkRoot(root); err != nil {
			return err
		}
		if m.config.Rank != root {
			r.flows[root].give(from, little)
			return nil
		}
		if err := m.checkWhole(of, "into", into, from); err != nil {
			return err
		}
		for other, f := range r.flows {
			if f != nil {
				f.take(pieceOf(into, len(from), other), little)
			}
		}
		copy(pieceOf(into, len(from), root), from)
		return nil
	})
	return err
}

func (m *Mesh) allGather(ctx context.Context, of dtype, from, into []byte) error {
	little := len(from) <= eagerSize
	_, err := m.run(ctx, sign(allGather, of, from, 0), func(r *round) error {
		if err := m.checkWhole(of, "into", into, from); err != nil {
			return err
		}
		for other, f := range r.flows {
			if f != nil {
				f.give(from, little)
				f.take(pieceOf(into, len(from), other), little)
			}
		}
		copy(pieceOf(into, len(from), m.config.Rank), from)
		return nil
	})
	return err
}
