package imagenet

import (
	"context"

	"github.com/plx-run/plx/trainer"
	"github.com/plx-run/plx/trainer/data"
	"github.com/plx-run/plx/trainer/nn"
	"gorgonia.org/gorgonia"
)

// network is the network of an example program, together with its loss
// function.
type network struct {
	logits        func(b *nn.Builder, x *nn.Node, classes int) *nn.Node
	side, classes int     // side is the height and width of an image in pixels, classes the number of classes
	smooth        float64 // label smoothing: the fraction of each label that is divided among all classes
}

// build builds the model. Its inputs are the images "x", of shape (batch, 3,
// side, side), and the one-hot classes "y". The metric "accuracy" is the
// fraction of the batch that is classified correctly. The output "logits" has
// shape (batch, classes).
func (n network) build(b *nn.Builder) {
	x, y := b.Input("x", 3, n.side, n.side), b.Labels("y", n.classes)
	logits := n.logits(b, x, n.classes)
	b.SmoothCrossEntropy(logits, y, n.smooth)
	b.Metric("accuracy", b.Node(nn.Accuracy(logits, y)))
	b.Fetch("logits", logits)
}

// scale contains the mean and standard deviation of ImageNet's pixels for each
// colour channel.
var scale = data.Scale{Mean: []float32{0.485, 0.456, 0.406}, Std: []float32{0.229, 0.224, 0.225}}

// feed converts images to the model's inputs for one batch.
func (n network) feed(images []data.Image) (trainer.Feed, error) {
	x, y, err := scale.Batch(images, 3*n.side*n.side, n.classes)
	return trainer.Feed{"x": nn.Batch(x, 3, n.side, n.side), "y": nn.Batch(y, n.classes)}, err
}

// Build returns the function that builds the trained model. Only tests use it.
func (e Example) Build(classes int, smoothing float64) func(b *nn.Builder) {
	return network{e.Logits, e.Size, classes, smoothing}.build
}

// Parameters returns the number of the model's parameters. Only tests use it.
func (e Example) Parameters(classes int) (n int, err error) {
	m, err := nn.Build(1, e.Build(classes, 0))(gorgonia.NewGraph(), 1)
	for _, v := range m.Variables {
		n += v.Shape().TotalSize()
	}
	return n, err
}

// Feeds generates 64 artificial pictures and returns a function that returns
// the batch of each step. Only tests use it.
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
