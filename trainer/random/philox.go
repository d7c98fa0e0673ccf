package random

import "math/bits"

// philox is the counter-based generator Philox 4x32 with ten rounds (Salmon
// et al., "Parallel random numbers: as easy as 1, 2, 3", SC 2011). The same
// key and counter give the same four numbers anywhere.
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
