package cost

import "math"

// union is how many rows so many of all workers touch together: between what
// one and what all touch, the geometric mean of two laws through both. By
// Heaps' law, which words of a text follow, it grows as a power of the
// workers; where rows are drawn evenly from a number of rows it saturates.
// Either alone is off by up to 25 % on the other's ground, the mean by 12 %.
func (v Variable) union(workers, of int) float64 {
	one, all, _ := v.touched()
	all = min(all, one*float64(of))
	if of < 2 || workers < 2 || all <= one {
		return one
	}
	power := one * math.Pow(float64(workers), math.Log(all/one)/math.Log(float64(of)))
	return math.Sqrt(power * saturating(one, all, workers, of))
}

// saturating is n(1-(1-one/n)^workers) for the n with which all are reached.
func saturating(one, all float64, workers, of int) float64 {
	reached := func(n float64, workers int) float64 {
		return -n * math.Expm1(float64(workers)*math.Log1p(-one/n))
	}
	low, high := all, all*1e9
	for range 100 {
		if n := math.Sqrt(low * high); reached(n, of) < all {
			low = n
		} else {
			high = n
		}
	}
	return reached(high, workers)
}
