package trainer

import "math/bits"

// philox is the counter-based generator Philox 4x32 with ten rounds (Salmon
// et al., "Parallel random numbers: as easy as 1, 2, 3", SC 2011). The same
// key and counter give the same four numbers anywhere, so a number depends on
// what it is for and not on who drew others before it.
func philox(key [2]uint32, counter [4]uint32) [4]uint32 {
	const (
		multiply0, multiply1 = 0xD2511F53, 0xCD9E8D57
		weyl0, weyl1         = 0x9E3779B9, 0xBB67AE85
	)
	x := counter
	for range 10 {
		high0, low0 := bits.Mul32(multiply0, x[0])
		high1, low1 := bits.Mul32(multiply1, x[2])
		x = [4]uint32{high1 ^ x[1] ^ key[0], low1, high0 ^ x[3] ^ key[1], low0}
		key[0] += weyl0
		key[1] += weyl1
	}
	return x
}

// stream is the sequence of numbers that belongs to a seed and a name.
type stream struct {
	key  [2]uint32
	name [2]uint32
}

func newStream(seed uint64, name string) stream {
	h := uint64(0xcbf29ce484222325) // FNV-1a, 64 bits
	for i := range len(name) {
		h = (h ^ uint64(name[i])) * 0x100000001b3
	}
	return stream{
		key:  [2]uint32{uint32(seed), uint32(seed >> 32)},
		name: [2]uint32{uint32(h), uint32(h >> 32)},
	}
}

// pair returns the i-th two numbers of the stream, uniform in [0, 1) with 53
// bits each.
func (s stream) pair(i uint64) (a, b float64) {
	x := philox(s.key, [4]uint32{uint32(i), uint32(i >> 32), s.name[0], s.name[1]})
	return unit(x[0], x[1]), unit(x[2], x[3])
}

func unit(low, high uint32) float64 {
	return float64((uint64(high)<<32|uint64(low))>>11) / (1 << 53)
}
