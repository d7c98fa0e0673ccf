package main

import "math"

func logSumExp(row []float64) float64 {
	largest, sum := math.Inf(-1), 0.0
	for _, v := range row {
		largest = max(largest, v)
	}
	for _, v := range row {
		sum += math.Exp(v - largest)
	}
	return largest + math.Log(sum)
}
