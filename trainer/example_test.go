package trainer_test

import (
	"context"
	"fmt"
	"log"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/plx-run/plx/trainer"
	"github.com/plx-run/plx/trainer/nn"
	"gorgonia.org/gorgonia"
	"gorgonia.org/tensor"
)

// batch returns rows [from, to) of a step's batch, which lie on the line y =
// 3x - 1.
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

// line builds the model w*x + b, whose loss is the mean squared error.
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

// A program passes its function train to trainer.Main, so that a launcher can
// start it. This example runs train with Alone.
func Example() {
	err := trainer.Alone(context.Background(), func(ctx context.Context, job *trainer.Job) error {
		session, err := job.Parallelize(ctx, line, trainer.SGD(0.5), trainer.Config{GlobalBatch: 5})
		if err != nil {
			return err
		}
		from, to := session.Rows() // this worker's rows of every batch
		feed := func(step int) (trainer.Feed, error) { return batch(step, from, to), nil }
		for r, err := range session.Train(ctx, 100, feed) {
			if err != nil {
				return err
			}
			if job.IsChief() && r.Step%50 == 0 {
				fmt.Printf("step %d: loss %.3f\n", r.Step, r.Loss)
			}
		}
		values, err := session.Values(ctx)
		if err != nil {
			return err
		}
		fmt.Printf("y = %.2f x %+.2f\n", values["w"].Data(), values["b"].Data())
		return nil
	})
	if err != nil {
		log.Fatal(err)
	}
	// Output:
	// step 0: loss 1.375
	// step 50: loss 0.000
	// y = 3.00 x -1.00
}

// Train calls feed for the next step before it takes the current one, so that
// the embedding rows for the next step can be fetched meanwhile.
func ExampleSession_Train() {
	err := trainer.Alone(context.Background(), func(ctx context.Context, job *trainer.Job) error {
		session, err := job.Parallelize(ctx, line, trainer.Adam(0.3), trainer.Config{GlobalBatch: 5})
		if err != nil {
			return err
		}
		from, to := session.Rows()
		feed := func(step int) (trainer.Feed, error) { return batch(step, from, to), nil }
		for result, err := range session.Train(ctx, 3, feed) {
			if err != nil {
				return err
			}
			fmt.Printf("step %d at rate %g\n", result.Step, result.Rate)
		}
		return nil
	})
	if err != nil {
		log.Fatal(err)
	}
	// Output:
	// step 0 at rate 0.3
	// step 1 at rate 0.3
	// step 2 at rate 0.3
}

// A program may call Step itself instead of Train. Prefetch announces which
// embedding rows the next step needs. Train calls both.
func ExampleSession_Step() {
	err := trainer.Alone(context.Background(), func(ctx context.Context, job *trainer.Job) error {
		session, err := job.Parallelize(ctx, line, trainer.SGD(0.5), trainer.Config{GlobalBatch: 5, StopAtStep: 2})
		if err != nil {
			return err
		}
		from, to := session.Rows()
		for {
			if err := session.Prefetch(batch(session.Steps()+1, from, to)); err != nil {
				return err
			}
			result, err := session.Step(ctx, batch(session.Steps(), from, to))
			if err != nil {
				fmt.Println(err)
				return err
			}
			fmt.Printf("step %d: loss %.3f\n", result.Step, result.Loss)
		}
	})
	if err != nil {
		log.Fatal(err)
	}
	// Output:
	// step 0: loss 1.375
	// step 1: loss 0.803
	// training is done
}

// Settings that are known before the program runs are passed to Main, and the
// others to Parallelize. Command-line flags override both.
func ExampleConfig() {
	train := func(ctx context.Context, job *trainer.Job) error {
		config := trainer.Config{GlobalBatch: 5 * job.NumShards(), ClipNorm: 0.5, StopAtStep: 1}
		session, err := job.Parallelize(ctx, line, trainer.SGD(0.5), config)
		if err != nil {
			return err
		}
		from, to := session.Rows()
		feed := func(step int) (trainer.Feed, error) { return batch(step, from, to), nil }
		for r, err := range session.Train(ctx, 100, feed) {
			if err != nil {
				return err
			}
			fmt.Printf("%d rows, gradient of norm %.2f\n", to, r.Norm)
		}
		return nil
	}
	if err := trainer.Alone(context.Background(), train, trainer.Config{Seed: 7, Replicas: 2}); err != nil { // most programs call trainer.Main(train, ...) instead
		log.Fatal(err)
	}
	// Output: 10 rows, gradient of norm 1.60
}

// The chief (worker 0) writes summaries. The workers in ProfileWorkers write
// timelines of the steps in ProfileSteps.
func ExampleConfig_summaries() {
	dir, err := os.MkdirTemp("", "summaries")
	if err != nil {
		fmt.Println(err)
		return
	}
	defer os.RemoveAll(dir)
	train := func(ctx context.Context, job *trainer.Job) error {
		session, err := job.Parallelize(ctx, line, trainer.SGD(0.5), trainer.Config{GlobalBatch: 5})
		if err != nil {
			return err
		}
		feed := func(step int) (trainer.Feed, error) { return batch(step, 0, 5), nil }
		for _, err := range session.Train(ctx, 3, feed) {
			if err != nil {
				return err
			}
		}
		return nil
	}
	if err := trainer.Alone(context.Background(), train, trainer.Config{SummaryDir: dir, ProfileSteps: "0,2", ProfileWorkers: "0", ProfileDir: dir}); err != nil {
		log.Fatal(err)
	}
	files, err := filepath.Glob(filepath.Join(dir, "*"))
	for _, file := range files {
		fmt.Println(regexp.MustCompile(`\.[0-9]+\..*\.[0-9]+`).ReplaceAllString(filepath.Base(file), ".TIME.HOST.PID.NUMBER"))
	}
	fmt.Println(err)
	// Output:
	// events.out.tfevents.TIME.HOST.PID.NUMBER
	// steps.TIME.HOST.PID.NUMBER.jsonl
	// timeline-worker-0.json
	// <nil>
}

// Recurrent state: each row of the input "so far" begins with zero, and then
// holds the sum of "x" over all earlier steps. Checkpoints contain it.
func ExampleModel_carried() {
	build := func(b *nn.Builder) {
		x, before := b.Input("x", 1), b.Input("so far", 1)
		sum := b.Node(gorgonia.Add(before, x))
		b.Carry(before, sum)
		b.Fetch("sum", sum)
		b.MSE(b.Dense("out", sum, 1), b.Input("y", 1))
	}
	err := trainer.Alone(context.Background(), func(ctx context.Context, job *trainer.Job) error {
		session, err := job.Parallelize(ctx, nn.Build(job.Seed(), build), trainer.SGD(0.01), trainer.Config{GlobalBatch: 2})
		if err != nil {
			return err
		}
		feed := func(step int) (trainer.Feed, error) {
			return trainer.Feed{"x": nn.Batch([]float32{1, 10}, 1), "y": nn.Batch([]float32{0, 0}, 1)}, nil
		}
		for r, err := range session.Train(ctx, 3, feed) {
			if err != nil {
				return err
			}
			fmt.Println(r.Fetches["sum"][0].Data())
		}
		return nil
	})
	if err != nil {
		log.Fatal(err)
	}
	// Output:
	// [1 10]
	// [2 20]
	// [3 30]
}

// Collectives combine slices of all workers. This example has only one worker.
func ExampleJob_AllReduce() {
	err := trainer.Alone(context.Background(), func(ctx context.Context, job *trainer.Job) error {
		counts := []int64{int64(job.NumWorkers()), 5}
		if err := job.AllReduce(ctx, counts); err != nil {
			return err
		}
		stop, err := job.Any(ctx, counts[1] > 4)
		fmt.Println(counts, stop)
		return err
	})
	if err != nil {
		log.Fatal(err)
	}
	// Output: [1 5] true
}

// Evaluate computes the loss for any number of rows, without training.
func ExampleSession_Evaluate() {
	err := trainer.Alone(context.Background(), func(ctx context.Context, job *trainer.Job) error {
		session, err := job.Parallelize(ctx, line, trainer.SGD(0.5), trainer.Config{GlobalBatch: 5})
		if err != nil {
			return err
		}
		result, err := session.Evaluate(ctx, batch(0, 0, 20))
		fmt.Printf("loss %.3f after %d steps\n", result.Loss, session.Steps())
		return err
	})
	if err != nil {
		log.Fatal(err)
	}
	// Output: loss 1.375 after 0 steps
}

// OpenCheckpoint evaluates a checkpoint without its training program. The
// folder is that of --ckpt-dir, or a copy that plx fetch has made.
func ExampleOpenCheckpoint() {
	dir, err := os.MkdirTemp("", "example-")
	if err != nil {
		log.Fatal(err)
	}
	defer os.RemoveAll(dir)
	ctx := context.Background()
	err = trainer.Alone(ctx, func(ctx context.Context, job *trainer.Job) error {
		session, err := job.Parallelize(ctx, line, trainer.SGD(0.5), trainer.Config{GlobalBatch: 5})
		if err != nil {
			return err
		}
		for _, err := range session.Train(ctx, 40, func(step int) (trainer.Feed, error) { return batch(step, 0, 5), nil }) {
			if err != nil {
				return err
			}
		}
		return nil
	}, trainer.Config{CheckpointDir: dir})
	if err != nil {
		log.Fatal(err)
	}

	c, err := trainer.OpenCheckpoint(ctx, dir, line)
	if err != nil {
		log.Fatal(err)
	}
	defer c.Close()
	result, err := c.Evaluate(ctx, batch(0, 0, 20))
	if err != nil {
		log.Fatal(err)
	}
	fmt.Printf("loss %.3f after %d steps\n", result.Loss, c.Step())
	// Output: loss 0.000 after 40 steps
}

// A model may use a plain Gorgonia graph. plx replaces Gorgonia's dropout with
// its own, so an evaluation drops nothing.
//
// The model only looks up rows of "table", so that variable becomes a table:
// rows that a step does not look up keep their values. With NoFindSparse it
// stays dense, and weight decay changes all rows.
func ExampleModel_gorgonia() {
	build := func(g *gorgonia.ExprGraph, batch int) (trainer.Model, error) {
		index := gorgonia.NewVector(g, tensor.Int, gorgonia.WithName("index"), gorgonia.WithShape(batch))
		table := gorgonia.NewMatrix(g, tensor.Float32, gorgonia.WithName("table"), gorgonia.WithShape(4, 5), gorgonia.WithInit(gorgonia.Ones()))
		loss, err := gorgonia.ByIndices(table, index, 0)
		if err == nil {
			loss, err = gorgonia.Dropout(loss, 0.5)
		}
		if err == nil {
			loss, err = gorgonia.Mean(loss)
		}
		return trainer.Model{Inputs: gorgonia.Nodes{index}, Variables: gorgonia.Nodes{table}, Loss: loss}, err
	}
	for _, dense := range []bool{false, true} {
		err := trainer.Alone(context.Background(), func(ctx context.Context, job *trainer.Job) error {
			session, err := job.Parallelize(ctx, build, trainer.SGD(0.5).WithDecay(0.5), trainer.Config{GlobalBatch: 2, NoFindSparse: dense})
			if err != nil {
				return err
			}
			feed := trainer.Feed{"index": tensor.New(tensor.WithBacking([]int{0, 3}))}
			before, err := session.Evaluate(ctx, feed)
			if err != nil {
				return err
			}
			result, err := session.Step(ctx, feed)
			if err != nil {
				return err
			}
			values, err := session.Values(ctx)
			if err != nil {
				return err
			}
			fmt.Printf("loss %.1f in an evaluation, %.1f in a step; row 1 after it: %v\n", before.Loss, result.Loss, values["table"].Data().([]float32)[5:10])
			return nil
		})
		if err != nil {
			log.Fatal(err)
		}
	}
	// Output:
	// loss 1.0 in an evaluation, 0.6 in a step; row 1 after it: [1 1 1 1 1]
	// loss 1.0 in an evaluation, 0.6 in a step; row 1 after it: [0.75 0.75 0.75 0.75 0.75]
}

// Shard holders keep the table of an embedding. A step fetches only the rows
// in its feed and sends back only their gradients.
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
	err := trainer.Alone(context.Background(), func(ctx context.Context, job *trainer.Job) error {
		session, err := job.Parallelize(ctx, build, trainer.SGD(1), trainer.Config{GlobalBatch: 2})
		if err != nil {
			return err
		}
		feed := trainer.Feed{"word": tensor.New(tensor.WithBacking([]int{7, 999}))}
		if _, err := session.Step(ctx, feed); err != nil {
			return err
		}
		values, err := session.Values(ctx)
		if err != nil {
			return err
		}
		table := values["words"].Data().([]float32)
		fmt.Println("row 7:", table[2*7:2*7+2], "row 8:", table[2*8:2*8+2])
		return nil
	})
	if err != nil {
		log.Fatal(err)
	}
	// Output: row 7: [0.25 0.25] row 8: [0.5 0.5]
}

// letters is a dataset whose samples are the letters of a string. Package data
// reads datasets from files.
type letters string

func (l letters) Len() int               { return len(l) }
func (l letters) At(i int) (byte, error) { return l[i], nil }

// Shard returns the part of a dataset that a worker reads: its rows of each
// batch. This example has only one worker, which reads all rows.
func ExampleShard() {
	err := trainer.Alone(context.Background(), func(ctx context.Context, job *trainer.Job) error {
		shard, err := trainer.Shard(ctx, job, letters("abcde"), 2)
		if err != nil {
			return err
		}
		for step := range 3 {
			batch, err := shard.Batch(step)
			fmt.Printf("step %d: %s %v\n", step, batch, err)
		}
		return nil
	})
	if err != nil {
		log.Fatal(err)
	}
	// Output:
	// step 0: ab <nil>
	// step 1: cd <nil>
	// step 2:  EOF
}

// Epochs reads a dataset repeatedly, each time in another random order. With
// batches of two, each epoch leaves out one of the five letters. Feeds can be
// read for any step, in any order.
func ExampleEpochs() {
	err := trainer.Alone(context.Background(), func(ctx context.Context, job *trainer.Job) error {
		shard, err := trainer.Epochs(ctx, job, letters("abcde"), 2)
		if err != nil {
			return err
		}
		for _, step := range []int{0, 1, 2, 3, 0} {
			batch, err := shard.Batch(step)
			if err != nil {
				return err
			}
			fmt.Printf("epoch %d, step %d: %s\n", step/2, step, batch)
		}
		return nil
	}, trainer.Config{Seed: 3})
	if err != nil {
		log.Fatal(err)
	}
	// Output:
	// epoch 0, step 0: cd
	// epoch 0, step 1: ae
	// epoch 1, step 2: ce
	// epoch 1, step 3: ba
	// epoch 0, step 0: cd
}

// A schedule computes the learning rate from the step.
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

// The same seed and name give the same initial values on every machine.
func ExampleKaimingUniform() {
	first := trainer.KaimingUniform(1, "w")(tensor.Float64, 2, 2).([]float64)
	again := trainer.KaimingUniform(1, "w")(tensor.Float64, 2, 2).([]float64)
	fmt.Println(first[0] == again[0], first[3] == again[3])
	// Output: true true
}

// Package nn builds a model from layers. The builder names the variables and
// initialises them from the seed.
func ExampleMain_builder() {
	build := func(b *nn.Builder) {
		x, y := b.Input("x", 2), b.Labels("y", 2)
		logits := b.Dense("out", b.Tanh(b.Dense("hidden", x, 8)), 2)
		b.CrossEntropy(logits, y)
		b.Metric("accuracy", b.Node(nn.Accuracy(logits, y)))
	}
	// The task is to tell whether the two numbers in a row are equal (first
	// label) or not (second label).
	feed := trainer.Feed{"x": nn.Batch([]float32{0, 0, 0, 1, 1, 0, 1, 1}, 2), "y": nn.Batch([]float32{1, 0, 0, 1, 0, 1, 1, 0}, 2)}
	err := trainer.Alone(context.Background(), func(ctx context.Context, job *trainer.Job) error {
		session, err := job.Parallelize(ctx, nn.Build(job.Seed(), build), trainer.SGD(0.5), trainer.Config{GlobalBatch: 4})
		if err != nil {
			return err
		}
		for result, err := range session.Train(ctx, 1000, func(int) (trainer.Feed, error) { return feed, nil }) {
			if err != nil {
				return err
			}
			if result.Step == 999 {
				fmt.Printf("accuracy %.2f, loss below 0.01: %v\n", result.Metrics["accuracy"], result.Loss < 0.01)
			}
		}
		return nil
	})
	if err != nil {
		log.Fatal(err)
	}
	// Output: accuracy 1.00, loss below 0.01: true
}

// A model may use the number of the virtual worker that computes it, and the
// number of all virtual workers. This example has one; with --virtual-workers
// 4 the numbers are 0 to 3.
func ExampleModel_shard() {
	build := func(b *nn.Builder) {
		id, of := nn.Shard(b)
		x := b.Dense("line", b.Input("x", 1), 1)
		b.MSE(b.Node(gorgonia.Add(x, b.Node(gorgonia.Div(id, of)))), b.Input("y", 1))
		b.Fetch("id", id)
		b.Fetch("of", of)
	}
	err := trainer.Alone(context.Background(), func(ctx context.Context, job *trainer.Job) error {
		session, err := job.Parallelize(ctx, nn.Build(job.Seed(), build), trainer.SGD(0.1), trainer.Config{GlobalBatch: 4})
		if err != nil {
			return err
		}
		x := nn.Batch([]float32{1, 2, 3, 4}, 1)
		result, err := session.Step(ctx, trainer.Feed{"x": x, "y": x})
		fmt.Println(result.Fetches["id"], "of", result.Fetches["of"])
		return err
	})
	if err != nil {
		log.Fatal(err)
	}
	// Output: [0] of [1]
}

// Parallelize must return an error for an invalid model of package nn, before
// it connects to other tasks.
func TestInvalidLayersAreRefusedBeforeTheStart(t *testing.T) {
	for want, build := range map[string]func(b *nn.Builder){
		`layer "d": x is (4, 2, 2), want (rows, features)`: func(b *nn.Builder) { b.MSE(b.Dense("d", b.Input("x", 2, 2), 1), b.Input("y", 1)) },
		`the name "d" is used twice`: func(b *nn.Builder) {
			b.MSE(b.Dense("d", b.Dense("d", b.Input("x", 2), 2), 1), b.Input("y", 1))
		},
		`variable "idle.w" gets no gradient: the loss does not depend on it`: func(b *nn.Builder) {
			x := b.Input("x", 2)
			b.Dense("idle", x, 2)
			b.MSE(b.Dense("d", x, 1), b.Input("y", 1))
		},
		`embedding "words" is never looked up`: func(b *nn.Builder) {
			b.Embedding("words", 10, 2, 0.1)
			b.MSE(b.Dense("d", b.Input("x", 2), 1), b.Input("y", 1))
		},
		`embedding "words" gets no gradient from the rows that "word" looks up: the loss does not depend on them`: func(b *nn.Builder) {
			b.Lookup(b.Embedding("words", 10, 2, 0.1), "word", b.Batch())
			b.MSE(b.Dense("d", b.Input("x", 2), 1), b.Input("y", 1))
		},
	} {
		err := trainer.Alone(context.Background(), func(ctx context.Context, job *trainer.Job) error {
			if _, err := job.Parallelize(ctx, nn.Build(1, build), trainer.SGD(1), trainer.Config{GlobalBatch: 4}); err == nil || !strings.Contains(err.Error(), want) {
				t.Errorf("%v, want %s", err, want)
			}
			return nil
		})
		if err != nil {
			t.Error(err)
		}
	}
}

// This hook stops the training as soon as the loss is small.
func ExampleHook() {
	enough := trainer.Hook{
		Name:       "enough",
		EverySteps: 10,
		After: func(_ context.Context, result trainer.Result) error {
			if result.Loss < 0.01 {
				return trainer.ErrDone
			}
			return nil
		},
		End: func(_ context.Context, steps int) error {
			fmt.Printf("enough after %d steps\n", steps)
			return nil
		},
	}
	err := trainer.Alone(context.Background(), func(ctx context.Context, job *trainer.Job) error {
		session, err := job.Parallelize(ctx, line, trainer.SGD(0.5), trainer.Config{GlobalBatch: 5, Hooks: []trainer.Hook{enough}})
		if err != nil {
			return err
		}
		for {
			if _, err := session.Step(ctx, batch(session.Steps(), 0, 5)); err != nil {
				return err // ErrDone at the end
			}
		}
	})
	if err != nil {
		log.Fatal(err)
	}
	// Output: enough after 31 steps
}

// A hook gets the gradient of each variable before it is sent, and may change
// it. This one sets the bias's gradient to zero, so that the bias is not
// trained.
func ExampleGradient() {
	freeze := trainer.Hook{Name: "freeze", Gradient: func(_ context.Context, g trainer.Gradient) error {
		if g.Variable == "b" {
			clear(g.Values.([]float32))
		}
		return nil
	}}
	err := trainer.Alone(context.Background(), func(ctx context.Context, job *trainer.Job) error {
		session, err := job.Parallelize(ctx, line, trainer.SGD(0.5), trainer.Config{GlobalBatch: 5, Hooks: []trainer.Hook{freeze}})
		if err != nil {
			return err
		}
		if _, err := session.Step(ctx, batch(0, 0, 5)); err != nil {
			return err
		}
		values, err := session.Values(ctx)
		if err != nil {
			return err
		}
		fmt.Printf("w %.3f, b %.3f\n", values["w"].Data(), values["b"].Data())
		return nil
	})
	if err != nil {
		log.Fatal(err)
	}
	// Output: w 0.625, b 0.000
}
