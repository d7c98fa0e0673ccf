package random

import "math"

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
