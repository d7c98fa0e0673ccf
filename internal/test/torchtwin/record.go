package torchtwin

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math"
	"os"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/plx-run/plx/trainer"
	"github.com/plx-run/plx/trainer/nn"
	"gorgonia.org/gorgonia"
	"gorgonia.org/tensor"
)

// Environment variables for a child process: the file that it must write, the
// element type of its model, and the number of virtual workers (shares of a
// batch).
const (
	childFile    = "PLX_TORCHTWIN_FILE"
	childDtype   = "PLX_TORCHTWIN_DTYPE"
	childWorkers = "PLX_TORCHTWIN_WORKERS"
)

// runChild runs the current test in a child process, in which Compare trains
// the model and writes the result to path.
func runChild(t *testing.T, path, dtype string, workers int) {
	t.Helper()
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	var only []string
	for part := range strings.SplitSeq(t.Name(), "/") {
		only = append(only, "^"+regexp.QuoteMeta(part)+"$")
	}
	environment := []string{childFile + "=" + path, childDtype + "=" + dtype, childWorkers + "=" + strconv.Itoa(workers)}
	if _, err := run(t.Context(), environment, self, "-test.run="+strings.Join(only, "/")); err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(path); err != nil { // the child process has exited without running the test
		t.Fatal(err)
	}
}

// recorder trains a twin in a child process and writes the result to a file.
type recorder struct {
	path    string
	dtype   tensor.Dtype
	workers int // number of virtual workers
}

// inChild reports whether [runChild] has started this process. If so, it
// returns the recorder for the child.
func inChild() (recorder, bool) {
	workers, _ := strconv.Atoi(os.Getenv(childWorkers)) // runChild sets a number; in any other process the variable is not set, and the error does not matter
	r := recorder{os.Getenv(childFile), tensor.Float32, workers}
	if os.Getenv(childDtype) == "float64" {
		r.dtype = tensor.Float64
	}
	return r, r.path != ""
}

// train trains a twin, writes the file and ends the process.
func (r recorder) train(twin Twin) {
	trainer.Main(func(ctx context.Context, job *trainer.Job) error {
		file, err := r.record(ctx, job, twin)
		if err != nil {
			return err
		}
		return file.write(r.path, twin.Settings)
	}, trainer.Config{Seed: 7, VirtualWorkers: r.workers})
}

// record trains a twin and returns the content of its file.
func (r recorder) record(ctx context.Context, job *trainer.Job, twin Twin) (*content, error) {
	if job.NumShards() != r.workers {
		return nil, fmt.Errorf("%d virtual workers, want %d", job.NumShards(), r.workers)
	}
	file, c := &content{}, twin.Config
	first := map[string]*tensor.Dense{} // maps each variable's name to its values before the first step
	c.Hooks = []trainer.Hook{{Name: "record", Gradient: func(_ context.Context, g trainer.Gradient) error {
		if g.Step == 0 && r.workers == 1 {
			return file.gradient(g, first[g.Variable].Shape())
		}
		return nil
	}}}
	session, err := job.Parallelize(ctx, moved(nn.BuildOf(r.dtype, job.Seed(), twin.Build)), twin.Optimizer, c)
	if err != nil {
		return nil, err
	}
	values, err := session.Values(ctx)
	if err != nil {
		return nil, err
	}
	for name, v := range values {
		first[name] = v
		file.dense("first/"+name, v)
	}
	feeds, err := twin.Feeds(ctx, job, session)
	if err != nil {
		return nil, err
	}
	if err := r.take(ctx, session, cmp.Or(twin.Steps, defaultSteps), feeds, file); err != nil {
		return nil, err
	}
	if values, err = session.Values(ctx); err != nil {
		return nil, err
	}
	for name, v := range values {
		file.dense("last/"+name, v)
	}
	return file, nil
}

// take makes the given number of steps and adds their feeds and losses to
// file.
func (r recorder) take(ctx context.Context, session *trainer.Session, steps int, feeds func(step int) (trainer.Feed, error), file *content) error {
	var losses []float64
	for result, err := range session.Train(ctx, steps, func(step int) (trainer.Feed, error) {
		feed, err := feeds(step)
		if err != nil {
			return nil, err
		}
		for name, v := range feed {
			feed[name] = as(r.dtype, v)
			file.dense(fmt.Sprintf("feed/%d/%s", step, name), feed[name].(*tensor.Dense))
		}
		return feed, nil
	}) {
		if err != nil {
			return err
		}
		losses = append(losses, result.Loss)
	}
	if len(losses) != steps {
		return errors.New("the training has ended early")
	}
	file.floats("loss", []int{steps}, losses)
	return nil
}

// as converts a tensor of float32 to the element type dtype of the model. It
// returns a tensor of another type unchanged.
func as(dtype tensor.Dtype, v tensor.Tensor) tensor.Tensor {
	x, ok := v.Data().([]float32)
	if !ok || dtype == tensor.Float32 {
		return v
	}
	wide := make([]float64, len(x))
	for i, f := range x {
		wide[i] = float64(f)
	}
	return tensor.New(tensor.WithShape(v.Shape()...), tensor.WithBacking(wide))
}

// moved returns a build function that changes the initial values of those
// variables whose elements are all equal. Zeros and ones would hide mistakes:
// if the last layer is zero, the gradients of all other layers are zero.
func moved(build trainer.Build) trainer.Build {
	return func(g *gorgonia.ExprGraph, batch int) (trainer.Model, error) {
		m, err := build(g, batch)
		if err != nil {
			return m, err
		}
		leaves := slices.Clone(m.Variables)
		for _, s := range m.States {
			leaves = append(leaves, s.Variable)
		}
		for i, n := range leaves {
			switch x := n.Value().Data().(type) {
			case []float32:
				move(x, i)
			case []float64:
				move(x, i)
			}
		}
		return m, nil
	}
}

func move[T float32 | float64](x []T, number int) {
	if slices.Min(x) != slices.Max(x) || len(x) == 1 {
		return
	}
	for k := range x {
		x[k] += T(0.1 * math.Sin(float64(7*number+k+1)))
	}
}
