package trainer

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math"
	"slices"
	"testing"

	"gorgonia.org/gorgonia"
	"gorgonia.org/tensor"

	"github.com/plx-run/plx/trainer/config"
	"github.com/plx-run/plx/trainer/nn/ops"
	"github.com/plx-run/plx/trainer/random"
)

// trial describes a training that tests run with different numbers of tasks
// and options.
type trial struct {
	build   func(seed uint64) Build
	feed    func(step, from, to int) Feed // returns rows [from, to) of the batch of a step
	opt     Optimizer
	options []Option
	steps   int
	tuned   func(r *Session) // called before the first step, unless nil
}

// trained holds the results of a trial, which must be the same on every
// worker.
type trained struct {
	digest string
	losses []float64
	norms  []float64
}

// run trains on one worker.
func (x trial) run(j *Job) (done trained, err error) {
	ctx := context.Background()
	r, err := j.Parallelize(ctx, x.build(j.Seed()), x.opt, x.options...)
	if err != nil {
		return done, err
	}
	if x.tuned != nil {
		x.tuned(r)
	}
	from, to := r.Rows()
	for r.Steps() < x.steps {
		result, err := r.Step(ctx, x.feed(r.Steps(), from, to))
		if errors.Is(err, ErrDone) {
			break
		}
		if err != nil {
			return done, err
		}
		done.losses, done.norms = append(done.losses, result.Loss), append(done.norms, result.Norm)
	}
	done.digest, err = r.variables.digest(ctx, r.Steps())
	return done, err
}

// alone trains in one process.
func (x trial) alone(t *testing.T, settings ...Setting) trained {
	t.Helper()
	done, err := x.run(soloJob(io.Discard, settings...))
	if err != nil {
		t.Fatal(err)
	}
	return done
}

// together runs the trial in a job with several tasks. It checks that all
// workers have the same results and that the servers end without an error.
func (x trial) together(tj *testJob) (trained, error) {
	all := make([]trained, len(tj.jobs))
	errs := tj.all(func(j *Job) (err error) {
		all[j.WorkerID()], err = x.run(j)
		return err
	})
	errs = append(errs, tj.wait())
	for rank, done := range all {
		if err := done.same(all[0]); err != nil {
			errs = append(errs, fmt.Errorf("worker:%d and worker:0: %w", rank, err))
		}
	}
	return all[0], errors.Join(errs...)
}

// same wants the same bits.
func (d trained) same(want trained) error {
	switch {
	case d.digest != want.digest:
		return fmt.Errorf("%s, want %s", d.digest, want.digest)
	case !slices.EqualFunc(d.losses, want.losses, sameBits):
		return fmt.Errorf("losses %v, want %v", d.losses, want.losses)
	case !slices.EqualFunc(d.norms, want.norms, sameBits):
		return fmt.Errorf("norms %v, want %v", d.norms, want.norms)
	}
	return nil
}

func sameBits(a, b float64) bool { return math.Float64bits(a) == math.Float64bits(b) }

// flags returns a configuration with the fields that the function set has set.
func flags(set func(c *config.Config)) (c Config) {
	set(&c)
	return c
}

// scattered makes a small model behave like a large one: gradients fill
// several buckets, and variables are split across several shard holders.
var scattered = flags(func(c *config.Config) { c.BucketBytes, c.PartitionBytes = 3000, 4096 })

// layers builds a graph layer by layer and keeps the first error.
type layers struct {
	g     *gorgonia.ExprGraph
	seed  uint64
	model Model
	err   error
}

func (l *layers) node(f func() (*gorgonia.Node, error)) *gorgonia.Node {
	if l.err != nil {
		return nil
	}
	n, err := f()
	l.err = err
	return n
}

func (l *layers) variable(name string, shape ...int) *gorgonia.Node {
	v := gorgonia.NewTensor(l.g, tensor.Float32, len(shape), gorgonia.WithName(name), gorgonia.WithShape(shape...),
		gorgonia.WithInit(KaimingUniform(l.seed, name)))
	l.model.Variables = append(l.model.Variables, v)
	return v
}

func (l *layers) linear(name string, x *gorgonia.Node, in, out int) *gorgonia.Node {
	w, b := l.variable(name+".w", in, out), l.variable(name+".b", out)
	return l.node(func() (*gorgonia.Node, error) { return ops.Linear(x, w, b) })
}

func (l *layers) dropout(name string, x *gorgonia.Node) *gorgonia.Node {
	return l.node(func() (*gorgonia.Node, error) { return ops.Dropout(x, 0.25, name) })
}

// classify completes a model with cross-entropy of the logits and the input
// "y", and with the accuracy.
func (l *layers) classify(logits *gorgonia.Node, batch int) (Model, error) {
	y := gorgonia.NewVector(l.g, tensor.Float32, gorgonia.WithName("y"), gorgonia.WithShape(batch))
	l.model.Inputs = append(l.model.Inputs, y)
	l.model.Loss = l.node(func() (*gorgonia.Node, error) { return ops.CrossEntropy(logits, y) })
	accuracy := l.node(func() (*gorgonia.Node, error) { return ops.Accuracy(logits, y) })
	l.model.Metrics = map[string]*gorgonia.Node{"accuracy": accuracy}
	return l.model, l.err
}

// dropoutMLP builds a model with dropout. Some variables are large enough for
// several shard holders, others are smaller than a bucket.
func dropoutMLP(seed uint64) Build {
	return func(g *gorgonia.ExprGraph, batch int) (Model, error) {
		l := &layers{g: g, seed: seed}
		x := gorgonia.NewMatrix(g, tensor.Float32, gorgonia.WithName("x"), gorgonia.WithShape(batch, 60))
		l.model.Inputs = gorgonia.Nodes{x}
		h := l.linear("first", x, 60, 36)
		h = l.node(func() (*gorgonia.Node, error) { return ops.Tanh(h) })
		h = l.linear("second", l.dropout("drop1", h), 36, 20)
		h = l.node(func() (*gorgonia.Node, error) { return ops.Relu(h) })
		return l.classify(l.linear("last", l.dropout("drop2", h), 20, 3), batch)
	}
}

// smallCNN builds a convolutional model with dropout and with the running
// averages of a batch norm.
func smallCNN(seed uint64) Build {
	return func(g *gorgonia.ExprGraph, batch int) (Model, error) {
		l := &layers{g: g, seed: seed}
		x := gorgonia.NewTensor(g, tensor.Float32, 4, gorgonia.WithName("x"), gorgonia.WithShape(batch, 2, 6, 6))
		l.model.Inputs = gorgonia.Nodes{x}
		filters := l.variable("filters", 5, 2, 3, 3)
		h := l.node(func() (*gorgonia.Node, error) { return ops.Conv2D(x, filters, 1, 1) })
		h = l.norm("norm", h, 5)
		h = l.node(func() (*gorgonia.Node, error) { return ops.Relu(h) })
		h = l.node(func() (*gorgonia.Node, error) { return ops.MaxPool2D(h, 2, 2, 0) })
		h = l.node(func() (*gorgonia.Node, error) { return ops.Flatten(h) })
		return l.classify(l.linear("last", l.dropout("drop", h), 5*3*3, 3), batch)
	}
}

func (l *layers) norm(name string, x *gorgonia.Node, channels int) *gorgonia.Node {
	scale, bias := l.variable(name+".scale", channels), l.variable(name+".bias", channels)
	mean := gorgonia.NewVector(l.g, tensor.Float32, gorgonia.WithName(name+".mean"), gorgonia.WithShape(channels), gorgonia.WithInit(Zeros()))
	variance := gorgonia.NewVector(l.g, tensor.Float32, gorgonia.WithName(name+".variance"), gorgonia.WithShape(channels), gorgonia.WithInit(gorgonia.Ones()))
	return l.node(func() (*gorgonia.Node, error) {
		n, err := ops.BatchNorm(x, scale, bias, mean, variance, 0.75, 1e-5, name)
		l.model.States = []State{
			{Variable: mean, Batch: n.BatchMean, Momentum: n.Momentum},
			{Variable: variance, Batch: n.BatchVariance, Momentum: n.Momentum},
		}
		return n.Out, err
	})
}

// Size of the table in the model words. It has enough rows for every server
// and worker to hold some.
const wordRows, wordWidth, wordLength = 37, 6, 4

// words builds a model that averages the table rows of four words, some of
// them equal.
func words(seed uint64) Build {
	return func(g *gorgonia.ExprGraph, batch int) (Model, error) {
		l := &layers{g: g, seed: seed}
		table := &Embedding{Name: "table", Rows: wordRows, Width: wordWidth, First: UniformRows(seed, -0.5, 0.5)}
		l.model.Embeddings = []*Embedding{table}
		found := l.node(func() (*gorgonia.Node, error) { return table.Lookup(g, "word", batch*wordLength) })
		found = l.node(func() (*gorgonia.Node, error) {
			return gorgonia.Reshape(found, tensor.Shape{batch, wordLength * wordWidth})
		})
		h := l.linear("first", found, wordLength*wordWidth, 8)
		h = l.node(func() (*gorgonia.Node, error) { return ops.Tanh(h) })
		return l.classify(l.linear("last", h, 8, 3), batch)
	}
}

// classified returns a function that makes rows of normally distributed
// features and their classes.
func classified(shape ...int) func(step, from, to int) Feed {
	each := tensor.Shape(shape).TotalSize()
	return func(step, from, to int) Feed {
		f := rows(tensor.Float32, step, from, to, each, 3)
		x := f["x"].Data().([]float32)
		return Feed{"x": tensor.New(tensor.WithShape(append([]int{to - from}, shape...)...), tensor.WithBacking(x)), "y": classes(f)}
	}
}

// classes converts the one-hot labels in a feed to class numbers.
func classes(f Feed) tensor.Tensor {
	hot := f["y"].Data().([]float32)
	y := make([]float32, len(hot)/3)
	for i := range y {
		y[i] = float32(slices.Index(hot[3*i:3*i+3], 1))
	}
	return tensor.New(tensor.WithShape(len(y)), tensor.WithBacking(y))
}

// sentences returns rows of word indices. The first word decides the class,
// and the second is the same in every row.
func sentences(step, from, to int) Feed {
	f := rows(tensor.Float32, step, from, to, 3, 3)
	y := classes(f).Data().([]float32)
	var index []int64
	for i, class := range y {
		bits := random.New(uint64(step), "sentences").Bits(uint64(from + i))
		index = append(index, int64(class)*2, 7, int64(bits[0]%wordRows), int64(bits[1]%9))
	}
	return Feed{"word": tensor.New(tensor.WithShape(len(index)), tensor.WithBacking(index)), "y": classes(f)}
}
