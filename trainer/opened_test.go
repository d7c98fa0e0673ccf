package trainer

import (
	"bytes"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/plx-run/plx/trainer/config"
	"github.com/plx-run/plx/trainer/nn/ops"
	"github.com/plx-run/plx/trainer/safetensors"
	"gorgonia.org/gorgonia"
	"gorgonia.org/tensor"
)

// saved trains on two workers and a server with checkpoints, and returns the
// checkpoint folder and the results.
func (x trial) saved(t *testing.T) (dir string, done trained) {
	t.Helper()
	dir = t.TempDir()
	tj := newTestJobOn(t, hostNames(2), 1, VirtualWorkers(4), everySteps(dir, 3), Arch("ps"), scattered)
	done, err := x.until(x.steps, tj)
	if err != nil {
		t.Fatalf("%v\n%s", err, tj.logs[0])
	}
	return dir, done
}

// An opened checkpoint must have the values of the training, whichever task
// held them. It must compute the same as a session that resumes from the
// checkpoint.
func TestOpenedCheckpointHasTrainedValues(t *testing.T) {
	options := []Option{GlobalBatch(12)}
	for name, x := range map[string]trial{
		"states": {build: smallCNN, feed: classified(2, 6, 6), opt: Adam(0.02), options: options, steps: 6},
		"tables": {build: divided, feed: sentences, opt: Adagrad(0.1), options: options, steps: 6},
	} {
		t.Run(name, func(t *testing.T) {
			dir, want := x.saved(t)
			feed := x.feed(99, 0, 7)
			resumed := soloJob(io.Discard, VirtualWorkers(4), everySteps(dir, 3))
			if err := resumed.network.openStore(t.Context(), dir, 3); err != nil {
				t.Fatal(err)
			}
			defer resumed.network.close()
			s, err := resumed.Parallelize(t.Context(), x.build(resumed.Seed()), x.opt, options...)
			if err != nil {
				t.Fatal(err)
			}
			loss, err := s.Evaluate(t.Context(), feed)
			if err != nil {
				t.Fatal(err)
			}
			before := listed(t, dir)

			newest, err := filepath.Glob(filepath.Join(dir, "*", "manifest.json"))
			if err != nil || len(newest) == 0 {
				t.Fatal(newest, err)
			}
			for _, path := range []string{dir, filepath.Dir(slices.Max(newest))} {
				c, err := OpenCheckpoint(t.Context(), path, x.build(resumed.Seed()))
				if err != nil {
					t.Fatal(err)
				}
				if c.Step() != 6 || !strings.Contains(path+c.ID(), c.ID()) {
					t.Errorf("%s is of step %d", c.ID(), c.Step())
				}
				if got, err := c.session.variables.digest(t.Context(), 6); err != nil || got != want.digest {
					t.Errorf("%s, %v; want %s", got, err, want.digest)
				}
				if got, err := c.Evaluate(t.Context(), feed); err != nil || !sameBits(got.Loss, loss.Loss) {
					t.Errorf("loss %v, %v; want %v", got.Loss, err, loss.Loss)
				}
				if err := c.Close(); err != nil {
					t.Error(err)
				}
			}
			if after := listed(t, dir); !slices.Equal(after, before) {
				t.Errorf("the folder had %q and has %q", before, after)
			}
		})
	}
}

// listed returns the paths of all files below a folder.
func listed(t *testing.T, dir string) (all []string) {
	t.Helper()
	all, err := filepath.Glob(filepath.Join(dir, "*", "*"))
	if err != nil {
		t.Fatal(err)
	}
	return all
}

// OpenCheckpoint must reject checkpoints that are missing, damaged or of
// another model, and say why.
func TestInvalidCheckpointIsNotOpened(t *testing.T) {
	x := trial{build: smallCNN, feed: classified(2, 6, 6), opt: SGD(0.1), options: []Option{GlobalBatch(12)}, steps: 3}
	dir, _ := x.saved(t)
	file := filepath.Join(t.TempDir(), "a.safetensors")
	writeTensors(t, file, safetensors.Tensor{Name: "a", Dtype: safetensors.F32, Shape: []int{1}, Data: make([]byte, 4)})
	for path, c := range map[string]struct {
		build Build
		want  string
	}{
		dir:                           {dropoutMLP(1), `variable "first.w" is not in the checkpoint`},
		filepath.Join(dir, "nowhere"): {smallCNN(1), "no such file"},
		t.TempDir():                   {smallCNN(1), "there is no checkpoint in it"},
		file:                          {smallCNN(1), "is a file of tensors"},
	} {
		if _, err := OpenCheckpoint(t.Context(), path, c.build); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: %v, want %q", path, err, c.want)
		}
	}
	files, err := filepath.Glob(filepath.Join(dir, "*", "*.safetensors"))
	if err != nil {
		t.Fatal(err)
	}
	for _, path := range files {
		b, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		b[len(b)-1] ^= 1
		if err := os.WriteFile(path, b, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := OpenCheckpoint(t.Context(), dir, smallCNN(1)); err == nil || !strings.Contains(err.Error(), "it was damaged") {
		t.Errorf("a damaged checkpoint: %v", err)
	}
}

func writeTensors(t *testing.T, path string, all ...safetensors.Tensor) {
	t.Helper()
	var b bytes.Buffer
	if _, err := safetensors.Write(&b, nil, all); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, b.Bytes(), 0o600); err != nil {
		t.Fatal(err)
	}
}

// newHead builds the model smallCNN with another last layer.
func newHead(seed uint64) Build {
	return func(g *gorgonia.ExprGraph, batch int) (Model, error) {
		l := &layers{g: g, seed: seed}
		x := gorgonia.NewTensor(g, tensor.Float32, 4, gorgonia.WithName("x"), gorgonia.WithShape(batch, 2, 6, 6))
		l.model.Inputs = gorgonia.Nodes{x}
		filters := l.variable("filters", 5, 2, 3, 3)
		h := l.node(func() (*gorgonia.Node, error) { return ops.Conv2D(x, filters, 1, 1) })
		h = l.norm("norm", h, 5)
		h = l.node(func() (*gorgonia.Node, error) { return ops.Flatten(h) })
		h = l.linear("last", h, 5*6*6, 4)
		return l.classify(l.linear("head", h, 4, 3), batch)
	}
}

// With --init-from, variables must begin with the checkpoint's values of the
// same name, on every worker and server, with any optimiser. The log lists the
// other variables.
func TestInitFromSetsVariablesOfSameName(t *testing.T) {
	x := trial{build: smallCNN, feed: classified(2, 6, 6), opt: Adam(0.02), options: []Option{GlobalBatch(12)}, steps: 3}
	dir, _ := x.saved(t)
	c, err := OpenCheckpoint(t.Context(), dir, smallCNN(1))
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	want, err := c.Values(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	from := flags(func(c *config.Config) { c.InitFrom = dir })
	tj := newTestJobOn(t, hostNames(2), 1, VirtualWorkers(4), from, Arch("ps"), scattered)
	errs := tj.all(func(j *Job) error {
		s, err := j.Parallelize(t.Context(), newHead(j.Seed()), SGD(0.1), GlobalBatch(12))
		if err != nil {
			return err
		}
		got, err := s.Values(t.Context())
		for _, name := range []string{"filters", "norm.scale", "norm.bias", "norm.mean", "norm.variance", "last.b"} {
			same := got[name].Shape().Eq(want[name].Shape()) && slices.Equal(got[name].Data().([]float32), want[name].Data().([]float32))
			if same == (name == "last.b") {
				t.Errorf("%s on %s: has the checkpoint's values: %v", name, j.contract.Task, same)
			}
		}
		return err
	})
	for _, err := range errs {
		if err != nil {
			t.Error(err)
		}
	}
	said := tj.logs[0].String()
	for _, line := range []string{
		"5 variables of 9 begin with the values of checkpoint ",
		`variables with the program's initial values: "last.w" (there float32 of shape (45, 3), here float32 of shape (180, 4)), "last.b" (`, `"head.w" (not there)`,
	} {
		if !strings.Contains(said, line) {
			t.Errorf("the chief does not say %q:\n%s", line, said)
		}
	}
	if strings.Contains(tj.logs[1].String(), "begin with") {
		t.Error("another worker than the chief reads the checkpoint")
	}
}

// --init-from must also read safetensors files that other programs have
// written. A training that resumes from its own checkpoint keeps its values.
func TestInitFromReadsTensorFiles(t *testing.T) {
	file := filepath.Join(t.TempDir(), "bias.safetensors")
	writeTensors(t, file, safetensors.Tensor{Name: "last.b", Dtype: safetensors.F32, Shape: []int{3}, Data: []byte{0, 0, 0x80, 0x3f, 0, 0, 0, 0x40, 0, 0, 0x40, 0x40}},
		safetensors.Tensor{Name: "other", Dtype: safetensors.F32, Shape: []int{}, Data: make([]byte, 4)})
	var log bytes.Buffer
	j := soloJob(&log, flags(func(c *config.Config) { c.InitFrom = file }))
	s, err := j.Parallelize(t.Context(), smallCNN(1), SGD(0.1), GlobalBatch(12))
	if err != nil {
		t.Fatal(err)
	}
	values, err := s.Values(t.Context())
	if err != nil || !slices.Equal(values["last.b"].Data().([]float32), []float32{1, 2, 3}) {
		t.Errorf("last.b is %v, %v", values["last.b"], err)
	}
	if !strings.Contains(log.String(), `tensors that were not used: "other"`) {
		t.Errorf("the log does not say what is not used:\n%s", &log)
	}
	x := trial{build: smallCNN, feed: classified(2, 6, 6), opt: SGD(0.1), options: []Option{GlobalBatch(12)}, steps: 3}
	dir, _ := x.saved(t)
	resumed := soloJob(io.Discard, VirtualWorkers(4), everySteps(dir, 3), flags(func(c *config.Config) { c.InitFrom = file }))
	if err := resumed.network.openStore(t.Context(), dir, 3); err != nil {
		t.Fatal(err)
	}
	defer resumed.network.close()
	if s, err = resumed.Parallelize(t.Context(), smallCNN(1), SGD(0.1), GlobalBatch(12)); err != nil || s.Steps() != 3 {
		t.Fatal(s, err)
	}
	if values, err = s.Values(t.Context()); err != nil || values["last.b"].Data().([]float32)[2] == 3 {
		t.Errorf("a training that resumes began anew: %v, %v", values["last.b"], err)
	}
	foreign := filepath.Join(t.TempDir(), "foreign.safetensors")
	writeTensors(t, foreign, safetensors.Tensor{Name: "other", Dtype: safetensors.F32, Shape: []int{}, Data: make([]byte, 4)})
	for path, want := range map[string]string{foreign: "has no variable of this program", file + "x": "no such file"} {
		j := soloJob(io.Discard, flags(func(c *config.Config) { c.InitFrom = path }))
		if _, err := j.Parallelize(t.Context(), dropoutMLP(1), SGD(0.1), GlobalBatch(12)); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v, want %q", err, want)
		}
	}
}
