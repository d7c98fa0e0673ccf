package partition_test

import (
	"fmt"

	"github.com/plx-run/plx/trainer/autotune/partition"
)

func ExampleCut() {
	counts := []float64{60, 20, 10, 10} // the first 25 of 100 rows travel most
	bounds := partition.Cut(100, 3, 50, counts)
	fmt.Println(bounds, partition.Assign(partition.Loads(bounds, counts), make([]float64, 2)))
	// Output: [0 16 50 100] [1 0 1]
}
