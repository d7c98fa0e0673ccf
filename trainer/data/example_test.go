package data_test

import (
	"context"
	"fmt"
	"iter"

	"github.com/plx-run/plx/trainer/data"
)

// batch is what one step is fed: rows x 784 pixels and rows x 10 labels.
type batch struct {
	step int
	x, y []float32
}

// A worker's rows of each global batch, made ready in the background. Two
// workers of one row each give the batches of one worker of two.
func Example() {
	images, err := data.MakeDigits(1, 0, 1000)
	if err != nil {
		fmt.Println(err)
		return
	}
	epochs, err := data.NewEpochs(data.EpochsConfig{Samples: images.Len(), Batch: 2, Seed: 1})
	if err != nil {
		fmt.Println(err)
		return
	}
	fill, err := data.NewFiller(images, images.Classes(), data.Scale{})
	if err != nil {
		fmt.Println(err)
		return
	}
	batches := func(lo, hi int) iter.Seq2[batch, error] {
		return data.Prefetch(context.Background(), 2, func(context.Context) iter.Seq2[batch, error] {
			return func(yield func(batch, error) bool) {
				for step, rows := range epochs.All(0, 3, lo, hi) {
					b := batch{step, make([]float32, len(rows)*784), make([]float32, len(rows)*10)}
					if err := fill.Fill(rows, b.x, b.y); !yield(b, err) || err != nil {
						return
					}
				}
			}
		})
	}
	for _, rows := range [][2]int{{0, 2}, {0, 1}, {1, 2}} {
		for b, err := range batches(rows[0], rows[1]) {
			if err != nil {
				fmt.Println(err)
				return
			}
			fmt.Println("rows", rows, "step", b.step, "labels", b.y)
		}
	}
	// Output:
	// rows [0 2] step 0 labels [0 0 0 1 0 0 0 0 0 0 0 0 0 0 0 1 0 0 0 0]
	// rows [0 2] step 1 labels [0 0 0 0 0 0 0 0 1 0 0 0 0 0 0 1 0 0 0 0]
	// rows [0 2] step 2 labels [0 0 0 0 0 0 0 1 0 0 0 0 0 0 0 0 0 0 0 1]
	// rows [0 1] step 0 labels [0 0 0 1 0 0 0 0 0 0]
	// rows [0 1] step 1 labels [0 0 0 0 0 0 0 0 1 0]
	// rows [0 1] step 2 labels [0 0 0 0 0 0 0 1 0 0]
	// rows [1 2] step 0 labels [0 0 0 0 0 1 0 0 0 0]
	// rows [1 2] step 1 labels [0 0 0 0 0 1 0 0 0 0]
	// rows [1 2] step 2 labels [0 0 0 0 0 0 0 0 0 1]
}
