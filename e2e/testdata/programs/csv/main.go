// Command csv classifies the rows of a table, stops when the loss is small, and tries the
// model afterwards.
package main

import (
	"context"
	"flag"
	"fmt"
	"os"

	"github.com/plx-run/plx/trainer"
	"github.com/plx-run/plx/trainer/data"
	"github.com/plx-run/plx/trainer/nn"
)

var (
	path = flag.String("data", "", "`file` with columns x, y, class")
	out  = flag.String("out", "", "`file` that the chief writes after the training")
)

const batch = 8

func main() { trainer.Main(train) }

func build(b *nn.Builder) {
	x, class := b.Input("x", 2), b.Indices("class", b.Batch())
	logits := b.Dense("out", b.Tanh(b.Dense("hidden", x, 6)), 2)
	b.CrossEntropy(logits, class)
	b.Metric("accuracy", b.Node(nn.Accuracy(logits, class)))
}

// feed makes a feed of rows x, y, class.
func feed(rows [][]float32) trainer.Feed {
	var x []float32
	var class []int64
	for _, row := range rows {
		x, class = append(x, row[:2]...), append(class, int64(row[2]))
	}
	return trainer.Feed{"x": nn.Batch(x, 2), "class": nn.Batch(class)}
}

func train(ctx context.Context, job *trainer.Job) error {
	table, err := data.ReadCSV(nil, *path, true)
	if err != nil {
		return err
	}
	shard, err := trainer.Epochs(ctx, job, table, batch)
	if err != nil {
		return err
	}
	enough := trainer.Hook{Name: "enough", EverySteps: 10, After: func(_ context.Context, r trainer.Result) error {
		if r.Loss < 0.1 {
			return trainer.ErrDone
		}
		return nil
	}}
	session, err := job.Parallelize(ctx, nn.Build(job.Seed(), build), trainer.Adam(0.05), trainer.Config{GlobalBatch: batch, Hooks: []trainer.Hook{enough}})
	if err != nil {
		return err
	}
	for _, err := range session.Train(ctx, 1000, shard.Feed(func(rows [][]float32) (trainer.Feed, error) { return feed(rows), nil })) {
		if err != nil {
			return err
		}
	}
	var all [][]float32
	for i := range table.Len() {
		row, err := table.At(i)
		if err != nil {
			return err
		}
		all = append(all, row)
	}
	result, err := session.Evaluate(ctx, feed(all))
	if err != nil || !job.IsChief() {
		return err
	}
	line := fmt.Sprintf("%d steps, accuracy %.2f\n", session.Steps(), result.Metrics["accuracy"])
	fmt.Print(line)
	return os.WriteFile(*out, []byte(line), 0o644)
}
