// Package random generates random numbers that depend only on a seed, a name
// and optional numbers, such as the step and the virtual worker. Unlike those
// of math/rand, they do not depend on earlier draws.
//
//	s := random.New(seed, "dropout1").Derive(step, virtualWorker)
//	a, b := s.Pair(0)
//
// The numbers are the same on every machine and in any order of calls. They
// are not secret: anyone who knows the seed can compute all of them.
package random

import "math"

// Stream is the sequence of random numbers for a seed and a name. It is
// immutable, so any goroutine may use it.
type Stream struct {
	key  [2]uint32 // the seed, low word first
	name uint64    // hash of the name and of the numbers passed to Derive
}

// Constants of the 64-bit FNV-1a hash.
const (
	fnvOffset = 0xcbf29ce484222325
	fnvPrime  = 0x100000001b3
)

// New returns the stream for a seed and a name.
func New(seed uint64, name string) Stream {
	h := uint64(fnvOffset)
	for i := range len(name) {
		h = (h ^ uint64(name[i])) * fnvPrime
	}
	return Stream{key: [2]uint32{uint32(seed), uint32(seed >> 32)}, name: h}
}

// Derive returns a new stream for s and the given numbers, such as a step and
// a virtual worker. Different numbers give independent streams.
func (s Stream) Derive(numbers ...uint64) Stream {
	for _, n := range numbers {
		for range 8 {
			s.name = (s.name ^ n&0xff) * fnvPrime
			n >>= 8
		}
	}
	return s
}

// Words returns the four words that identify the stream: two of the seed and
// two of the name's hash. GPU code computes Bits from them.
func (s Stream) Words() [4]uint32 {
	return [4]uint32{s.key[0], s.key[1], uint32(s.name), uint32(s.name >> 32)}
}

// Bits returns the four 32-bit words at index i of the stream.
func (s Stream) Bits(i uint64) [4]uint32 {
	return philox(s.key, [4]uint32{uint32(i), uint32(i >> 32), uint32(s.name), uint32(s.name >> 32)})
}

// Pair returns the two numbers at index i of the stream, uniform in [0, 1)
// with 53 random bits each. Pair and Bits with the same i use the same random
// words.
func (s Stream) Pair(i uint64) (a, b float64) {
	x := s.Bits(i)
	return unit(x[0], x[1]), unit(x[2], x[3])
}

func unit(low, high uint32) float64 {
	return float64((uint64(high)<<32|uint64(low))>>11) / (1 << 53)
}

// philox is the counter-based generator Philox 4x32 with ten rounds (Salmon et
// al., "Parallel random numbers: as easy as 1, 2, 3", SC 2011). The result
// depends only on key and counter.
//
// The four words are separate variables so that they stay in registers; an
// array would be copied through memory in each round.
func philox(key [2]uint32, counter [4]uint32) [4]uint32 {
	const (
		multiply0, multiply1 = 0xD2511F53, 0xCD9E8D57
		weyl0, weyl1         = 0x9E3779B9, 0xBB67AE85
	)
	a, b, c, d := counter[0], counter[1], counter[2], counter[3]
	k0, k1 := key[0], key[1]
	for range 10 {
		x, y := multiply0*uint64(a), multiply1*uint64(c)
		a, b, c, d = uint32(y>>32)^b^k0, uint32(y), uint32(x>>32)^d^k1, uint32(x)
		k0 += weyl0
		k1 += weyl1
	}
	return [4]uint32{a, b, c, d}
}

// Zipf maps u, a uniform number in [0, 1), to an integer k in [0, n). The
// probability of k is ZipfChance(k, n), which is close to Zipf's law.
func Zipf(u float64, n int) int {
	return min(int(math.Exp(u*math.Log(float64(n+1))))-1, n-1)
}

// ZipfChance returns the probability that Zipf returns k for a given n:
// log((k+2)/(k+1)) / log(n+1).
func ZipfChance(k, n int) float64 {
	return math.Log1p(1/float64(k+1)) / math.Log(float64(n+1))
}
