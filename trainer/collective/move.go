package collective

import (
	"encoding/binary"
	"fmt"
)

// The collectives that move data without adding: what each worker gives to
// every other and gets from it, as bytes.

// call is one collective on this worker.
type call struct {
	signature
	group *Group
	rank  int // of this worker
	world int // number of workers
}

// exchange makes one exchange: by rank, what this worker gives and gets.
func (c *call) exchange(to, from [][]byte) error { return c.group.exchange(c.signature, to, from) }

// checkRoot is for operations with a root.
func (c *call) checkRoot(root int) error {
	if root < 0 || root >= c.world {
		return fmt.Errorf("%s: no worker has rank %d in a world of %d", operationNames[c.op], root, c.world)
	}
	return nil
}

// checkWhole wants whole to hold a piece for each worker.
func (c *call) checkWhole(name string, whole, piece []byte) error {
	if len(whole) != c.world*len(piece) {
		return fmt.Errorf("%s: %s has %d elements, want %d for each of %d workers", operationNames[c.op],
			name, len(whole)/c.of.size(), len(piece)/c.of.size(), c.world)
	}
	return nil
}

// none gives or takes nothing.
func (c *call) none() [][]byte { return make([][]byte, c.world) }

// all gives the same to every worker.
func (c *call) all(b []byte) [][]byte {
	to := c.none()
	for rank := range to {
		to[rank] = b
	}
	return to
}

// only gives or takes b at one worker alone.
func (c *call) only(rank int, b []byte) [][]byte {
	to := c.none()
	to[rank] = b
	return to
}

// equal cuts whole in as many equal pieces as there are workers.
func (c *call) equal(whole []byte) [][]byte {
	pieces := c.none()
	n := len(whole) / len(pieces)
	for rank := range pieces {
		pieces[rank] = whole[rank*n : (rank+1)*n : (rank+1)*n]
	}
	return pieces
}

// shares cuts x as [Share] does.
func (c *call) shares(x []byte) [][]byte {
	pieces := c.none()
	for rank := range pieces {
		pieces[rank] = share(x, c.of.size(), len(pieces), rank)
	}
	return pieces
}

// relayFrom is the number of workers from which on a broadcast of much goes in
// two exchanges: the root gives each worker a share, which that worker gives to
// all. So the root sends the slice about twice, and not to each worker.
const relayFrom = 4

// little is how many bytes a worker may send to each other one to save an
// exchange.
const little = 64 << 10

func (c *call) broadcast(x []byte, root int) error {
	if err := c.checkRoot(root); err != nil {
		return err
	}
	if c.world < relayFrom || len(x) <= little {
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

// allGatherBytes fills pieces, by rank, after an exchange of their lengths.
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
