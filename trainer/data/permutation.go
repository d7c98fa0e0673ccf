package data

import (
	"math/bits"

	"github.com/plx-run/plx/trainer/random"
)

// permutation maps 0..n-1 onto itself, each number once.
type permutation interface{ at(i int) int }

// maxTable is the largest number of samples for which an epoch's order is a
// table. Drawing a table of this size takes a few milliseconds. Larger orders
// take no memory.
const maxTable = 1 << 16

// newPermutation draws a permutation from a stream.
func newPermutation(n int, s random.Stream) permutation {
	if n <= maxTable {
		return newTable(n, s)
	}
	return newFeistel(n, s)
}

// inOrder is the identity.
type inOrder struct{}

func (inOrder) at(i int) int { return i }

// table is a permutation as a table.
type table []uint32

// newTable draws every permutation with the same probability, but for a bias of
// n/2^64 (Fisher and Yates, Durstenfeld's form).
func newTable(n int, s random.Stream) table {
	t := make(table, n)
	for i := range t {
		t[i] = uint32(i)
	}
	for i := n - 1; i > 0; i-- {
		x := s.Bits(uint64(i))
		j, _ := bits.Mul64(uint64(x[1])<<32|uint64(x[0]), uint64(i+1))
		t[i], t[j] = t[j], t[i]
	}
	return t
}

func (t table) at(i int) int { return int(t[i]) }

// feistel is a permutation that is computed at each place. It is a Feistel
// network over the smallest power of two that holds n, whose halves differ by
// at most one bit. It is repeated until the result is below n (Black and
// Rogaway, "Ciphers with arbitrary finite domains", CT-RSA 2002); that takes
// fewer than two repetitions on average. It reaches only a small part of all
// permutations, like any generator with a seed of 64 bits.
type feistel struct {
	stream   random.Stream
	n        uint64
	low, top uint // bits in the lower and in the upper half
}

// feistelRounds is even, so that the halves end with their first lengths. It is
// above the four rounds that make a permutation of random functions look
// random.
const feistelRounds = 8

func newFeistel(n int, s random.Stream) feistel {
	width := max(2, uint(bits.Len64(uint64(n-1))))
	return feistel{stream: s, n: uint64(n), top: width / 2, low: width - width/2}
}

func (f feistel) at(i int) int {
	x := f.once(uint64(i))
	for x >= f.n {
		x = f.once(x)
	}
	return int(x)
}

func (f feistel) once(x uint64) uint64 {
	left, right := x>>f.low, x&(1<<f.low-1)
	wide, narrow := f.low, f.top // bits of right, bits of left
	for round := range uint64(feistelRounds) {
		word := f.stream.Bits(round<<32 | right)[0]
		left, right = right, left^uint64(word)&(1<<narrow-1)
		wide, narrow = narrow, wide
	}
	return left<<wide | right
}
