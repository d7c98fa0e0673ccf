package main

import (
	"fmt"
	"math"

	"github.com/plx-run/plx/trainer/nn"
)

// network is a residual network (He et al. 2016, "Deep residual learning for
// image recognition"). In a bottleneck block, the stride is that of the 3 x 3
// convolution, as in most later implementations; in the paper it is that of
// the first 1 x 1 convolution.
type network struct{ depth int } // depth is the number of layers, a key of depths

// depths has the networks of the paper, by number of layers: the number of
// blocks in each of the four stages, and whether these are bottleneck blocks.
var depths = map[int]struct {
	blocks     [4]int
	bottleneck bool
}{
	18: {[4]int{2, 2, 2, 2}, false}, 34: {[4]int{3, 4, 6, 3}, false},
	50: {[4]int{3, 4, 6, 3}, true}, 101: {[4]int{3, 4, 23, 3}, true}, 152: {[4]int{3, 8, 36, 3}, true},
}

// logits adds the layers of the network to the model. x contains the images.
func (n *network) logits(b *nn.Builder, x *nn.Node, classes int) *nn.Node {
	h := b.Relu(unit(b, "stem", x, 64, 7, 2))
	h = b.MaxPool(h, nn.Window{Size: 3, Stride: 2, Pad: 1})
	for stage, blocks := range depths[n.depth].blocks {
		for i := range blocks {
			stride := 1
			if stage > 0 && i == 0 {
				stride = 2
			}
			h = n.block(b, fmt.Sprintf("stage%d.%d", stage+1, i), h, 64<<stage, stride)
		}
	}
	return b.Dense("classes", b.GlobalAvgPool(h), classes)
}

// block adds a residual block: two or three convolutions of x, plus x itself.
// If the shapes differ, another convolution projects x.
func (n *network) block(b *nn.Builder, name string, x *nn.Node, width, stride int) *nn.Node {
	var h *nn.Node
	out := width
	if depths[n.depth].bottleneck {
		out = 4 * width
		h = b.Relu(unit(b, name+".1", x, width, 1, 1))
		h = b.Relu(unit(b, name+".2", h, width, 3, stride))
		h = unit(b, name+".3", h, out, 1, 1)
	} else {
		h = b.Relu(unit(b, name+".1", x, width, 3, stride))
		h = unit(b, name+".2", h, width, 3, 1)
	}
	if stride > 1 || x.Shape()[1] != out {
		x = unit(b, name+".project", x, out, 1, stride)
	}
	return b.Relu(b.Residual(name, x, func(*nn.Node) *nn.Node { return h }))
}

// unit adds a convolution and a batch norm. With stride 1, the convolution
// keeps the image's size.
func unit(b *nn.Builder, name string, x *nn.Node, filters, size, stride int) *nn.Node {
	deviation := math.Sqrt(2 / float64(filters*size*size)) // initialisation of He et al. 2015, in the variant that preserves the variance in the backward pass
	h := b.Conv(name, x, filters, nn.Window{Size: size, Stride: stride, Pad: size / 2}, nn.NoBias(), nn.First(nn.Normal(0, deviation)))
	return b.BatchNorm(name+".norm", h)
}
