package trainer_test

import (
	"context"
	"fmt"

	"github.com/plx-run/plx/trainer"
	"gorgonia.org/gorgonia"
	"gorgonia.org/tensor"
)

// batch makes rows [from, to) of a batch of the line y = 3x - 1.
func batch(step, from, to int) trainer.Feed {
	x, y := make([]float32, to-from), make([]float32, to-from)
	for i := range x {
		x[i] = float32((step+from+i)%5) / 4
		y[i] = 3*x[i] - 1
	}
	return trainer.Feed{
		"x": tensor.New(tensor.WithShape(to-from), tensor.WithBacking(x)),
		"y": tensor.New(tensor.WithShape(to-from), tensor.WithBacking(y)),
	}
}

// line is the model w*x + b with the mean of squared errors.
func line(g *gorgonia.ExprGraph, batch int) (trainer.Model, error) {
	x := gorgonia.NewVector(g, tensor.Float32, gorgonia.WithName("x"), gorgonia.WithShape(batch))
	y := gorgonia.NewVector(g, tensor.Float32, gorgonia.WithName("y"), gorgonia.WithShape(batch))
	w := gorgonia.NewScalar(g, tensor.Float32, gorgonia.WithName("w"), gorgonia.WithValue(float32(0)))
	b := gorgonia.NewScalar(g, tensor.Float32, gorgonia.WithName("b"), gorgonia.WithValue(float32(0)))
	h, err := gorgonia.HadamardProd(x, w)
	if err == nil {
		h, err = gorgonia.Add(h, b)
	}
	if err == nil {
		h, err = gorgonia.Sub(h, y)
	}
	if err == nil {
		h, err = gorgonia.Square(h)
	}
	if err == nil {
		h, err = gorgonia.Mean(h)
	}
	return trainer.Model{Inputs: gorgonia.Nodes{x, y}, Variables: gorgonia.Nodes{w, b}, Loss: h}, err
}

// A program gives its train to Main: trainer.Main(train). Here it runs alone.
func Example() {
	trainer.Alone(func(ctx context.Context, job *trainer.Job) error {
		replica, err := job.Parallelize(ctx, line, trainer.SGD(0.5), trainer.GlobalBatch(5))
		if err != nil {
			return err
		}
		from, to := replica.Rows() // this worker's rows of every batch
		for replica.Steps() < 100 {
			result, err := replica.Step(ctx, batch(replica.Steps(), from, to))
			if err != nil {
				return err
			}
			if job.IsChief() && result.Step%50 == 0 {
				fmt.Printf("step %d: loss %.3f\n", result.Step, result.Loss)
			}
		}
		values, err := replica.Values(ctx)
		if err != nil {
			return err
		}
		fmt.Printf("y = %.2f x %+.2f\n", values["w"].Data(), values["b"].Data())
		return nil
	})
	// Output:
	// step 0: loss 1.375
	// step 50: loss 0.000
	// y = 3.00 x -1.00
}

// Train asks for the feed of the next step before it takes one, so that rows of
// embeddings travel while the step before is computed.
func ExampleReplica_Train() {
	trainer.Alone(func(ctx context.Context, job *trainer.Job) error {
		replica, err := job.Parallelize(ctx, line, trainer.Adam(0.3), trainer.GlobalBatch(5))
		if err != nil {
			return err
		}
		from, to := replica.Rows()
		feed := func(step int) (trainer.Feed, error) { return batch(step, from, to), nil }
		for result, err := range replica.Train(ctx, 3, feed) {
			if err != nil {
				return err
			}
			fmt.Printf("step %d at rate %g\n", result.Step, result.Rate)
		}
		return nil
	})
	// Output:
	// step 0 at rate 0.3
	// step 1 at rate 0.3
	// step 2 at rate 0.3
}

// Evaluate computes the loss of any number of rows, and trains nothing.
func ExampleReplica_Evaluate() {
	trainer.Alone(func(ctx context.Context, job *trainer.Job) error {
		replica, err := job.Parallelize(ctx, line, trainer.SGD(0.5), trainer.GlobalBatch(5))
		if err != nil {
			return err
		}
		result, err := replica.Evaluate(ctx, batch(0, 0, 20))
		fmt.Printf("loss %.3f after %d steps\n", result.Loss, replica.Steps())
		return err
	})
	// Output: loss 1.375 after 0 steps
}

// The table of an embedding lies with its shard holders. A step pulls the rows
// that its feed names and sends back their gradients alone.
func ExampleEmbedding() {
	build := func(g *gorgonia.ExprGraph, batch int) (trainer.Model, error) {
		words := &trainer.Embedding{Name: "words", Rows: 1000, Width: 2, First: trainer.UniformRows(1, 0.5, 0.5)}
		rows, err := words.Lookup(g, "word", batch)
		if err != nil {
			return trainer.Model{}, err
		}
		loss, err := gorgonia.Mean(rows)
		return trainer.Model{Embeddings: []*trainer.Embedding{words}, Loss: loss}, err
	}
	trainer.Alone(func(ctx context.Context, job *trainer.Job) error {
		replica, err := job.Parallelize(ctx, build, trainer.SGD(1), trainer.GlobalBatch(2))
		if err != nil {
			return err
		}
		feed := trainer.Feed{"word": tensor.New(tensor.WithBacking([]int{7, 999}))}
		if _, err := replica.Step(ctx, feed); err != nil {
			return err
		}
		values, err := replica.Values(ctx)
		if err != nil {
			return err
		}
		table := values["words"].Data().([]float32)
		fmt.Println("row 7:", table[2*7:2*7+2], "row 8:", table[2*8:2*8+2])
		return nil
	})
	// Output: row 7: [0.25 0.25] row 8: [0.5 0.5]
}

// letters is a dataset: package data reads others from files.
type letters string

func (l letters) Len() int               { return len(l) }
func (l letters) At(i int) (byte, error) { return l[i], nil }

// Every worker gets its share of a dataset. Alone there is one share.
func ExampleShard() {
	trainer.Alone(func(ctx context.Context, job *trainer.Job) error {
		shard, err := trainer.Shard[byte](job, letters("abcde"))
		if err != nil {
			return err
		}
		first, err := shard.Batch(0, 2)
		fmt.Printf("%d elements, the first batch is %s\n", shard.Len(), first)
		return err
	})
	// Output: 5 elements, the first batch is ab
}

// Schedules give every step its rate.
func ExampleOptimizer_WithSchedule() {
	rate := trainer.WarmUp(4, trainer.StepDecay(0.1, 0.5, 10))
	_ = trainer.Momentum(0, 0.9).WithSchedule(rate)
	for _, step := range []int{0, 3, 4, 13, 14, 24} {
		fmt.Printf("step %d: %.3f\n", step, rate(step))
	}
	// Output:
	// step 0: 0.020
	// step 3: 0.080
	// step 4: 0.100
	// step 13: 0.100
	// step 14: 0.050
	// step 24: 0.025
}

// The same seed and name give the same first values on every machine.
func ExampleKaimingUniform() {
	first := trainer.KaimingUniform(1, "w")(tensor.Float64, 2, 2).([]float64)
	again := trainer.KaimingUniform(1, "w")(tensor.Float64, 2, 2).([]float64)
	fmt.Println(first[0] == again[0], first[3] == again[3])
	// Output: true true
}
