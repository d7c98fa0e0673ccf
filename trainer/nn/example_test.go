package nn_test

import (
	"fmt"
	"log"

	"github.com/plx-run/plx/trainer/nn"
	"gorgonia.org/gorgonia"
)

// A convolutional network with a residual block. Parallelize would build it in
// a graph for each replica; here one graph is built, for a batch of 8 images.
func Example() {
	build := func(b *nn.Builder) {
		h := b.Relu(b.Conv("stem", b.Input("images", 3, 32, 32), 16, nn.Window{Size: 3, Pad: 1}))
		h = b.Residual("block", h, func(x *nn.Node) *nn.Node {
			x = b.Conv("conv", x, 16, nn.Window{Size: 3, Pad: 1}, nn.NoBias())
			return b.Relu(b.BatchNorm("norm", x))
		})
		h = b.Flatten(b.MaxPool(h, nn.Window{Size: 4}))
		b.CrossEntropy(b.Dense("out", b.Dropout("dropout", h, 0.5), 10), b.Labels("labels", 10))
	}
	model, err := nn.Build(1, build)(gorgonia.NewGraph(), 8)
	if err != nil {
		log.Fatal(err)
	}
	for _, v := range model.Variables {
		fmt.Println(v.Name(), v.Shape())
	}
	// Output:
	// stem.w (16, 3, 3, 3)
	// stem.b (16)
	// conv.w (16, 16, 3, 3)
	// norm.scale (16)
	// norm.bias (16)
	// out.w (1024, 10)
	// out.b (10)
}
