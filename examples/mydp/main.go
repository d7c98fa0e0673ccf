// Command mydp implements data-parallel training itself. It broadcasts the
// initial weights of worker 0. A hook averages each gradient over all workers
// while the backward pass continues. With --by-plx, package trainer of plx
// does both instead.
package main

import (
	"context"
	"flag"
	"fmt"
	"math"

	"github.com/plx-run/plx/trainer"
	"github.com/plx-run/plx/trainer/nn"
	"gorgonia.org/gorgonia"
	"gorgonia.org/tensor"
)

const features, classes, rows = 16, 4, 8 // size of an input, number of classes, and batch size of one worker

func model(b *nn.Builder) {
	x, y := b.Input("x", features), b.Labels("y", classes)
	b.CrossEntropy(b.Dense("last", b.Tanh(b.Dense("first", x, 32)), classes), y)
}

func main() {
	steps := flag.Int("steps", 100, "`steps` to take")
	byPlx := flag.Bool("by-plx", false, "leave broadcast and all-reduce to plx")
	trainer.Main(func(ctx context.Context, job *trainer.Job) error {
		if n := job.NumReplicasPerWorker(); n != 1 {
			return fmt.Errorf("%d virtual workers per worker: this program averages over workers, so each must have one", n)
		}
		d := &myDP{job: job}
		config := trainer.Config{GlobalBatch: rows * job.NumWorkers()}
		build := nn.Build(0, model)
		if !*byPlx {
			if err := d.broadcast(ctx); err != nil {
				return err
			}
			build, config.Hooks = d.build, []trainer.Hook{d.hook()}
		}
		session, err := job.Parallelize(ctx, build, trainer.SGD(0.2), config)
		if err != nil {
			return err
		}
		from, to := session.Rows()
		for result, err := range session.Train(ctx, *steps, func(step int) (trainer.Feed, error) { return batch(step, from, to), nil }) {
			if err != nil {
				return err
			}
			if job.IsChief() && (result.Step%20 == 0 || result.Step == *steps-1) {
				fmt.Printf("step %d | loss %.9g\n", result.Step, result.Loss)
			}
		}
		return nil
	})
}

// myDP implements data parallelism in the user's program.
type myDP struct {
	job   *trainer.Job
	first [][]float32 // initial values of the variables, received from worker 0
	norm  float64     // sum of the squares of all averaged gradients of the step
}

// broadcast draws initial weights, which differ between workers, and replaces
// them by the weights of worker 0. (Without broadcast, Parallelize would do
// the same replacement.)
func (d *myDP) broadcast(ctx context.Context) error {
	m, err := nn.Build(uint64(d.job.WorkerID()), model)(gorgonia.NewGraph(), rows)
	if err != nil {
		return err
	}
	for _, v := range m.Variables {
		values := v.Value().Data().([]float32)
		if err := d.job.Broadcast(ctx, values, 0); err != nil {
			return err
		}
		d.first = append(d.first, values)
	}
	return nil
}

// build builds the model with the broadcast weights.
func (d *myDP) build(g *gorgonia.ExprGraph, batch int) (trainer.Model, error) {
	m, err := nn.Build(0, model)(g, batch)
	for i, v := range m.Variables {
		if err == nil {
			err = gorgonia.Let(v, tensor.New(tensor.WithShape(v.Shape()...), tensor.WithBacking(d.first[i])))
		}
	}
	return m, err
}

// hook averages each gradient over the workers as soon as it is computed. Then
// plx averages gradients that are already equal, which changes nothing. After
// each step, the hook checks that all workers had equal gradients.
func (d *myDP) hook() trainer.Hook {
	return trainer.Hook{
		Name: "MyDP",
		Gradient: func(ctx context.Context, g trainer.Gradient) error {
			values := g.Values.([]float32)
			if err := d.job.AllReduce(ctx, values); err != nil {
				return err
			}
			for i := range values {
				values[i] /= float32(d.job.NumWorkers())
				d.norm += float64(values[i]) * float64(values[i])
			}
			return nil
		},
		After: func(ctx context.Context, result trainer.Result) error {
			norms := make([]float64, d.job.NumWorkers())
			if err := d.job.AllGather(ctx, []float64{d.norm}, norms); err != nil {
				return err
			}
			for rank, norm := range norms {
				if norm != norms[0] || norm == 0 {
					return fmt.Errorf("worker %d has gradients of norm %v, worker 0 %v", rank, math.Sqrt(norm), math.Sqrt(norms[0]))
				}
			}
			d.norm = 0
			return nil
		},
	}
}

// batch returns the rows [from, to) of the batch of a step. Each row is a point
// on a curve; its class is the quarter of the curve in which it lies.
func batch(step, from, to int) trainer.Feed {
	var x, y []float32
	for row := from; row < to; row++ {
		at := math.Mod(float64(step*97+row*31)*0.618, 1)
		for i := range features {
			x = append(x, float32(math.Sin(at*float64(i+1)*2)))
		}
		hot := make([]float32, classes)
		hot[int(at*classes)] = 1
		y = append(y, hot...)
	}
	return trainer.Feed{"x": nn.Batch(x, features), "y": nn.Batch(y, classes)}
}
