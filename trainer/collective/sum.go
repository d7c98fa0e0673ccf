package collective

import (
	"fmt"

	"github.com/plx-run/plx/trainer/wire"
)

// The collectives below add the workers' slices. Each worker computes the sums
// of its share of the elements; if there is little data, every worker computes
// all sums. The order of the additions is the same in both cases.

// blockSize limits the memory of a sum, in bytes: it receives the data of
// other workers in blocks that take at most this much together.
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
	if len(x)*(c.world-1) <= smallSize {
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

// inBlocks cuts the share of each worker into blocks of the same size. It
// calls do with the first blocks of all shares, then with the second ones, and
// so on. at is the offset of the blocks in their shares, in bytes. Even if all
// shares are empty, inBlocks calls do once, so that the workers can check that
// they run the same collective.
func (c *call) inBlocks(shares [][]byte, do func(block [][]byte, at int) error) error {
	size := max(blockSize/c.world/8*8, 8)
	longest := len(shares[0]) // the lengths of shares differ by one element at most, and the first share is the longest
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

// reduce sends pieces[i] to the worker of rank i, for every other worker. It
// receives the other workers' pieces for this worker, and stores in out the
// sum of these and of its own piece.
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

// parts returns scratch memory: a slice of n bytes for each worker. The next
// call of parts reuses the memory.
func (c *call) parts(n int) [][]byte {
	each := (n + 7) / 8 * 8 // rounded up to 8 bytes, so that the alignment of each part suits every type in Number
	room := c.group.room(each * c.world)
	parts := c.none()
	for rank := range parts {
		parts[rank] = room[rank*each : rank*each+n]
	}
	return parts
}

// treeSum stores the sum of parts, a slice indexed by rank, in out. It adds in
// the order of the fixed tree over ranks. It only reads parts[mine], which may
// be the same memory as out. It overwrites all other parts.
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

// Number is an element type that collectives support.
type Number = wire.Number

// dtype is an element type, in the encoding that frames use.
type dtype uint8

const (
	noType dtype = iota // type of a barrier, which has no elements
	byteType
	float32Type
	float64Type
	int64Type
	dtypes
)

var dtypeNames = [dtypes]string{"", "bytes", "float32", "float64", "int64"}

func (t dtype) String() string { return dtypeNames[t] }

func (t dtype) size() int { return [dtypes]int{1, 1, 4, 8, 8}[t] }

// add sets dst to a + b, element by element. dst may be a or b.
func (t dtype) add(dst, a, b []byte) {
	[dtypes]func(dst, a, b []byte){float32Type: add[float32], float64Type: add[float64], int64Type: add[int64]}[t](dst, a, b)
}

func add[T Number](out, x, y []byte) {
	dst, a, b := wire.Floats[T](out), wire.Floats[T](x), wire.Floats[T](y)
	a, b = a[:len(dst)], b[:len(dst)]
	for len(dst) >= 8 {
		d, x, y := (*[8]T)(dst), (*[8]T)(a), (*[8]T)(b)
		d[0], d[1], d[2], d[3] = x[0]+y[0], x[1]+y[1], x[2]+y[2], x[3]+y[3]
		d[4], d[5], d[6], d[7] = x[4]+y[4], x[5]+y[5], x[6]+y[6], x[7]+y[7]
		dst, a, b = dst[8:], a[8:], b[8:]
	}
	for i := range dst {
		dst[i] = a[i] + b[i]
	}
}

// aligned allocates size bytes whose alignment suits every type in Number.
func aligned(size int) []byte { return wire.Bytes(make([]int64, (size+7)/8))[:size] }

// Share returns the range [lo, hi) of elements that a rank owns when world
// workers divide a slice of n elements. The lengths differ by one at most;
// lower ranks get the longer ranges.
func Share(n, world, rank int) (lo, hi int) {
	each, more := n/world, n%world
	lo = rank*each + min(rank, more)
	hi = lo + each
	if rank < more {
		hi++
	}
	return lo, hi
}

// share returns the part of b that [Share] assigns to a rank, for elements of
// size bytes.
func share(b []byte, size, world, rank int) []byte {
	lo, hi := Share(len(b)/size, world, rank)
	return b[lo*size : hi*size : hi*size]
}
