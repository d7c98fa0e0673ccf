package collective

import "fmt"

// The collectives that add. Each element is added by the worker whose share it
// is in, or by every worker if there is little to add; the order is the same.

// blockSize is how many bytes of other workers' contributions a sum holds at a
// time.
const blockSize = 16 << 20

func (c *call) reduceScatter(from, into []byte) error {
	shares := c.shares(from)
	if mine := shares[c.rank]; len(into) != len(mine) {
		return fmt.Errorf("%s: into has %d elements, want this worker's share of %d", operationNames[c.op], len(into)/c.of.size(), len(mine)/c.of.size())
	}
	return c.inBlocks(shares, func(block [][]byte, at int) error {
		return c.reduce(block, into[min(at, len(into)):])
	})
}

func (c *call) allReduce(x []byte) error {
	if c.world == 1 {
		return nil
	}
	if len(x)*(c.world-1) <= little {
		parts := c.parts(len(x))
		parts[c.rank] = x
		if err := c.exchange(c.all(x), parts); err != nil {
			return err
		}
		treeSum(c.of, parts, c.rank, x)
		return nil
	}
	return c.inBlocks(c.shares(x), func(block [][]byte, _ int) error {
		mine := block[c.rank]
		if err := c.reduce(block, mine); err != nil {
			return err
		}
		return c.exchange(c.all(mine), block)
	})
}

// inBlocks calls do with a piece of every share at a time; at is where the
// pieces begin in their shares. It calls do at least once, so that the workers
// compare what they call.
func (c *call) inBlocks(shares [][]byte, do func(block [][]byte, at int) error) error {
	size := max(blockSize/c.world/8*8, 8)
	longest := len(shares[0]) // they differ by one element
	for at := 0; at == 0 || at < longest; at += size {
		block := c.none()
		for rank, share := range shares {
			block[rank] = share[min(at, len(share)):min(at+size, len(share))]
		}
		if err := do(block, at); err != nil {
			return err
		}
	}
	return nil
}

// reduce gives every worker its piece of this one's contributions, and leaves
// the sum of all contributions to this worker's piece in out.
func (c *call) reduce(pieces [][]byte, out []byte) error {
	mine := pieces[c.rank]
	parts := c.parts(len(mine))
	if err := c.exchange(pieces, parts); err != nil {
		return err
	}
	parts[c.rank] = mine
	treeSum(c.of, parts, c.rank, out[:len(mine)])
	return nil
}

// parts returns room for n bytes from every worker. It is good until the next
// call of parts.
func (c *call) parts(n int) [][]byte {
	each := (n + 7) / 8 * 8 // aligned for any Number
	room := c.group.room(each * c.world)
	parts := c.none()
	for rank := range parts {
		parts[rank] = room[rank*each : rank*each+n]
	}
	return parts
}

// treeSum leaves in out the sum of the parts in the order of the fixed tree.
// Part mine is read only and may be out; the others are overwritten.
func treeSum(t dtype, parts [][]byte, mine int, out []byte) {
	var sum func(lo, hi int) []byte
	sum = func(lo, hi int) []byte {
		if hi-lo == 1 {
			return parts[lo]
		}
		mid := lo + (hi-lo)/2
		a, b := sum(lo, mid), sum(mid, hi)
		into := a
		if lo <= mine && mine < hi {
			into = out
		}
		t.add(into[:len(out)], a, b)
		return into
	}
	if whole := sum(0, len(parts)); len(parts) == 1 {
		copy(out, whole)
	}
}
