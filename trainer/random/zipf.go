package random

import "math"

// Zipf makes a whole number in [0, n) of one in [0, 1): k with the probability
// that ZipfChance has, which is nearly Zipf's law.
func Zipf(u float64, n int) int {
	return min(int(math.Exp(u*math.Log(float64(n+1))))-1, n-1)
}

// ZipfChance is how often Zipf gives k of n numbers: log((k+2)/(k+1)) /
// log(n+1).
func ZipfChance(k, n int) float64 {
	return math.Log1p(1/float64(k+1)) / math.Log(float64(n+1))
}
