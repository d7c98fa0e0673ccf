package ops_test

import (
	"fmt"
	"log"

	"github.com/plx-run/plx/trainer/nn/ops"
	"gorgonia.org/gorgonia"
	"gorgonia.org/tensor"
)

// A network of one convolution, for images of one channel in three classes.
func Example() {
	g := gorgonia.NewGraph()
	ones := gorgonia.WithInit(gorgonia.Ones())
	x := gorgonia.NewTensor(g, tensor.Float32, 4, gorgonia.WithShape(2, 1, 6, 6), gorgonia.WithName("x"), ones)
	labels := gorgonia.NewVector(g, tensor.Int, gorgonia.WithShape(2), gorgonia.WithName("labels"),
		gorgonia.WithValue(tensor.New(tensor.WithShape(2), tensor.WithBacking([]int{0, 2}))))
	filters := gorgonia.NewTensor(g, tensor.Float32, 4, gorgonia.WithShape(4, 1, 3, 3), gorgonia.WithName("filters"), ones)
	w := gorgonia.NewMatrix(g, tensor.Float32, gorgonia.WithShape(36, 3), gorgonia.WithName("w"), ones)
	b := gorgonia.NewVector(g, tensor.Float32, gorgonia.WithShape(3), gorgonia.WithName("b"), ones)

	loss, err := network(x, labels, filters, w, b)
	if err != nil {
		log.Fatal(err)
	}
	if err := gorgonia.NewTapeMachine(g).RunAll(); err != nil {
		log.Fatal(err)
	}
	fmt.Printf("%.4f\n", loss.Value().Data())
	// Output: 1.0986
}

func network(x, labels, filters, w, b *gorgonia.Node) (*gorgonia.Node, error) {
	h, err := ops.Conv2D(x, filters, 1, 1) // (2, 4, 6, 6)
	if err != nil {
		return nil, err
	}
	if h, err = ops.Relu(h); err != nil {
		return nil, err
	}
	if h, err = ops.MaxPool2D(h, 2, 2, 0); err != nil { // (2, 4, 3, 3)
		return nil, err
	}
	if h, err = ops.Flatten(h); err != nil { // (2, 36)
		return nil, err
	}
	if h, err = ops.Dropout(h, 0.5, "dropout"); err != nil {
		return nil, err
	}
	logits, err := ops.Linear(h, w, b) // (2, 3)
	if err != nil {
		return nil, err
	}
	return ops.CrossEntropy(logits, labels)
}
