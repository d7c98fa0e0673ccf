// Package random gives numbers that depend on their purpose only: a seed, a
// name and, if given, the step and the virtual worker. They do not depend on
// other draws.
//
//	s := random.New(seed, "dropout1").Derive(step, virtualWorker)
//	a, b := s.Pair(0)
//
// The numbers are the same on every machine and in any order of calls. They are
// not secret: whoever knows the seed knows all of them.
package random

import "math"

// Stream is the sequence of numbers of a seed and a name. It is a value; any
// goroutine may use it.
type Stream struct {
	key  [2]uint32 // the seed
	name uint64    // hash of the name and of the numbers that Derive added
}

// The constants of FNV-1a, 64 bits.
const (
	fnvOffset = 0xcbf29ce484222325
	fnvPrime  = 0x100000001b3
)

// New returns the stream of a seed and a name.
func New(seed uint64, name string) Stream {
	h := uint64(fnvOffset)
	for i := range len(name) {
		h = (h ^ uint64(name[i])) * fnvPrime
	}
	return Stream{key: [2]uint32{uint32(seed), uint32(seed >> 32)}, name: h}
}

// Derive returns a separate stream for each list of numbers, such as a step and
// a virtual worker.
func (s Stream) Derive(numbers ...uint64) Stream {
	for _, n := range numbers {
		for range 8 {
			s.name = (s.name ^ n&0xff) * fnvPrime
			n >>= 8
		}
	}
	return s
}

// Words returns what tells the stream from all others: two words of the seed and
// two of the name. A device computes Bits from them.
func (s Stream) Words() [4]uint32 {
	return [4]uint32{s.key[0], s.key[1], uint32(s.name), uint32(s.name >> 32)}
}

// Bits returns four words: the i-th four of the stream.
func (s Stream) Bits(i uint64) [4]uint32 {
	return philox(s.key, [4]uint32{uint32(i), uint32(i >> 32), uint32(s.name), uint32(s.name >> 32)})
}

// Pair returns two numbers, uniform in [0, 1) with 53 bits each: the i-th two
// of the stream. Pair and Bits use the same words.
func (s Stream) Pair(i uint64) (a, b float64) {
	x := s.Bits(i)
	return unit(x[0], x[1]), unit(x[2], x[3])
}

func unit(low, high uint32) float64 {
	return float64((uint64(high)<<32|uint64(low))>>11) / (1 << 53)
}

// philox is the counter-based generator Philox 4x32 with ten rounds (Salmon
// et al., "Parallel random numbers: as easy as 1, 2, 3", SC 2011). The same
// key and counter give the same four numbers anywhere.
//
// The words are separate variables, which stay in registers. An array would be
// copied through memory in each round.
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

// Zipf turns u, a number in [0, 1), into a whole number in [0, n). It returns k
// with the probability that ZipfChance returns, which is close to Zipf's law.
func Zipf(u float64, n int) int {
	return min(int(math.Exp(u*math.Log(float64(n+1))))-1, n-1)
}

// ZipfChance is the probability that Zipf returns k of n numbers:
// log((k+2)/(k+1)) / log(n+1).
func ZipfChance(k, n int) float64 {
	return math.Log1p(1/float64(k+1)) / math.Log(float64(n+1))
}
