package main

import (
	"fmt"

	"github.com/plx-run/plx/trainer/nn"
)

// network is the Inception-v3 network.
type network struct{ dropout float64 } // dropout is the fraction of features dropped before the last layer

// logits adds the layers of Inception-v3 (Szegedy et al. 2016, "Rethinking the
// inception architecture for computer vision") to the model. The images x have
// at least 75 x 75 pixels. There is no auxiliary classifier.
func (n network) logits(b *nn.Builder, x *nn.Node, classes int) *nn.Node {
	l := layers{b}
	x = l.conv("stem.1", x, 32, nn.Window{Size: 3, Stride: 2})
	x = l.conv("stem.2", x, 32, square(3, 0))
	x = l.conv("stem.3", x, 64, square(3, 1))
	x = b.MaxPool(x, halving)
	x = l.conv("stem.4", x, 80, square(1, 0))
	x = l.conv("stem.5", x, 192, square(3, 0))
	x = b.MaxPool(x, halving)
	for i, pooled := range []int{32, 64, 64} {
		x = l.fine(fmt.Sprintf("fine%d", i), x, pooled)
	}
	x = l.join(l.conv("shrink0.1", x, 384, halving),
		l.convs("shrink0.2", x, unit{64, square(1, 0)}, unit{96, square(3, 1)}, unit{96, halving}),
		b.MaxPool(x, halving))
	for i, width := range []int{128, 160, 160, 192} {
		x = l.factored(fmt.Sprintf("factored%d", i), x, width)
	}
	x = l.join(l.convs("shrink1.1", x, unit{192, square(1, 0)}, unit{320, halving}),
		l.convs("shrink1.2", x, unit{192, square(1, 0)}, unit{192, wide(7)}, unit{192, tall(7)}, unit{192, halving}),
		b.MaxPool(x, halving))
	for i := range 2 {
		x = l.coarse(fmt.Sprintf("coarse%d", i), x)
	}
	return b.Dense("classes", b.Dropout("dropout", b.GlobalAvgPool(x), n.dropout), classes)
}

var halving = nn.Window{Size: 3, Stride: 2}

func square(size, pad int) nn.Window { return nn.Window{Size: size, Pad: pad} }

// wide returns a window with one row, tall a window with one column. A
// convolution with either of them keeps the image's size.
func wide(size int) nn.Window { return nn.Oblong(nn.Window{Size: 1}, square(size, size/2)) }
func tall(size int) nn.Window { return nn.Oblong(square(size, size/2), nn.Window{Size: 1}) }

// layers is a model builder with methods for the blocks of Inception-v3.
type layers struct{ *nn.Builder }

// unit is one convolution in a branch of a block.
type unit struct {
	filters int
	window  nn.Window
}

// conv adds a convolution, a batch norm and a rectifier.
func (l layers) conv(name string, x *nn.Node, filters int, w nn.Window) *nn.Node {
	h := l.Conv(name, x, filters, w, nn.NoBias())
	return l.Relu(l.BatchNormEpsilon(name+".norm", h, 1e-3)) // epsilon 1e-3, as in the paper's network
}

// convs adds several convolutions in sequence.
func (l layers) convs(name string, x *nn.Node, units ...unit) *nn.Node {
	for i, u := range units {
		x = l.conv(fmt.Sprintf("%s.%d", name, i), x, u.filters, u.window)
	}
	return x
}

// join concatenates the branches along the channel dimension.
func (l layers) join(branches ...*nn.Node) *nn.Node { return l.Node(nn.Concat(1, branches...)) }

// pooled adds the pooling branch of a block: average pooling and a 1 x 1
// convolution.
func (l layers) pooled(name string, x *nn.Node, filters int) *nn.Node {
	return l.conv(name, l.AvgPool(x, nn.Window{Size: 3, Stride: 1, Pad: 1}), filters, square(1, 0))
}

// fine adds the block that figure 5 of the paper (Szegedy et al. 2016) shows.
func (l layers) fine(name string, x *nn.Node, pooled int) *nn.Node {
	return l.join(l.conv(name+".1", x, 64, square(1, 0)),
		l.convs(name+".2", x, unit{48, square(1, 0)}, unit{64, square(5, 2)}),
		l.convs(name+".3", x, unit{64, square(1, 0)}, unit{96, square(3, 1)}, unit{96, square(3, 1)}),
		l.pooled(name+".4", x, pooled))
}

// factored adds the block of figure 6 of the paper (Szegedy et al. 2016). It
// has 1 x 7 and 7 x 1 convolutions instead of 7 x 7 convolutions.
func (l layers) factored(name string, x *nn.Node, width int) *nn.Node {
	return l.join(l.conv(name+".1", x, 192, square(1, 0)),
		l.convs(name+".2", x, unit{width, square(1, 0)}, unit{width, wide(7)}, unit{192, tall(7)}),
		l.convs(name+".3", x, unit{width, square(1, 0)}, unit{width, tall(7)}, unit{width, wide(7)}, unit{width, tall(7)}, unit{192, wide(7)}),
		l.pooled(name+".4", x, 192))
}

// coarse adds the block of figure 7 of the paper (Szegedy et al. 2016), in
// which two of the branches fork once more.
func (l layers) coarse(name string, x *nn.Node) *nn.Node {
	fork := func(name string, x *nn.Node) *nn.Node {
		return l.join(l.conv(name+".wide", x, 384, wide(3)), l.conv(name+".tall", x, 384, tall(3)))
	}
	return l.join(l.conv(name+".1", x, 320, square(1, 0)),
		fork(name+".2", l.conv(name+".2", x, 384, square(1, 0))),
		fork(name+".3", l.convs(name+".3", x, unit{448, square(1, 0)}, unit{384, square(3, 1)})),
		l.pooled(name+".4", x, 192))
}
