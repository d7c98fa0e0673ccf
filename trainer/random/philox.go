package random

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
