package imagenet

import (
	"context"

	"github.com/plx-run/plx/trainer"
	"github.com/plx-run/plx/trainer/data"
	"github.com/plx-run/plx/trainer/nn"
	"gorgonia.org/gorgonia"
)

// network is an example's network with a loss.
type network struct {
	logits        func(b *nn.Builder, x *nn.Node, classes int) *nn.Node
	side, classes int     // pixels of an image's side
	smooth        float64 // fraction of each label that is divided among all classes
}

// build makes the model for plx. Its inputs are "x", (batch, 3, side, side), and "y", the
// classes one-hot. The metric "accuracy" is the fraction of the batch that is classified
// correctly; the fetch "logits" has shape (batch, classes).
func (n network) build(b *nn.Builder) {
	x, y := b.Input("x", 3, n.side, n.side), b.Labels("y", n.classes)
	logits := n.logits(b, x, n.classes)
	b.SmoothCrossEntropy(logits, y, n.smooth)
	b.Metric("accuracy", b.Node(nn.Accuracy(logits, y)))
	b.Fetch("logits", logits)
}

// scale has the mean and the deviation of the pixels of ImageNet, by channel.
var scale = data.Scale{Mean: []float32{0.485, 0.456, 0.406}, Std: []float32{0.229, 0.224, 0.225}}

// feed makes a batch of images.
func (n network) feed(images []data.Image) (trainer.Feed, error) {
	x, y, err := scale.Batch(images, 3*n.side*n.side, n.classes)
	return trainer.Feed{"x": nn.Batch(x, 3, n.side, n.side), "y": nn.Batch(y, n.classes)}, err
}

// Build is the model that is trained, for tests.
func (e Example) Build(classes int, smoothing float64) func(b *nn.Builder) {
	return network{e.Logits, e.Size, classes, smoothing}.build
}

// Parameters is the number of the model's parameters, for tests.
func (e Example) Parameters(classes int) (n int, err error) {
	m, err := nn.Build(1, e.Build(classes, 0))(gorgonia.NewGraph(), 1)
	for _, v := range m.Variables {
		n += v.Shape().TotalSize()
	}
	return n, err
}

// Feeds are those of 64 artificial pictures, for tests.
func (e Example) Feeds(ctx context.Context, job *trainer.Job, batch, classes int) (func(step int) (trainer.Feed, error), error) {
	s := settings{example: e, size: e.Size, classes: classes, batch: batch, synthetic: true, samples: 64}
	from, err := s.open(job.Seed(), nil)
	if err != nil {
		return nil, err
	}
	shard, err := s.shard(ctx, job, from)
	if err != nil {
		return nil, err
	}
	return shard.Feed(network{side: e.Size, classes: classes}.feed), nil
}
