package trainer

import (
	"context"
	"errors"
	"io"
	"strings"
	"testing"

	"gorgonia.org/gorgonia"
	"gorgonia.org/tensor"

	"github.com/plx-run/plx/internal/test/patience"
	"github.com/plx-run/plx/trainer/config"
)

// refused checks that Parallelize fails on every worker, with an error that
// contains all the given words.
func refused(t *testing.T, tj *testJob, build func(j *Job) Build, opt Optimizer, words ...string) {
	t.Helper()
	errs := tj.all(func(j *Job) error {
		_, err := j.Parallelize(t.Context(), build(j), opt, GlobalBatch(24), StartTimeout(patience.Limit))
		if err == nil {
			return errors.New("was not refused")
		}
		return err
	})
	for rank, err := range errs {
		for _, word := range words {
			if err == nil || !strings.Contains(err.Error(), word) {
				t.Errorf("worker:%d: %v; want %q", rank, err, word)
			}
		}
	}
}

// threeHosts are three hosts with one worker each, so that no worker adds up
// gradients for others.
var threeHosts = []string{"127.0.0.2", "127.0.0.3", "127.0.0.4"}

// If workers have built different models, the error must say what differs and
// on which workers.
func TestWorkersWithDifferentGraphsAreRefused(t *testing.T) {
	renamed := func(name string, shape tensor.Shape, dt tensor.Dtype) Build {
		return func(g *gorgonia.ExprGraph, batch int) (Model, error) {
			x := gorgonia.NewTensor(g, dt, 2, gorgonia.WithName("x"), gorgonia.WithShape(batch, shape[0]))
			w := gorgonia.NewTensor(g, dt, 2, gorgonia.WithName(name), gorgonia.WithShape(shape...), gorgonia.WithInit(Zeros()))
			return Model{Inputs: gorgonia.Nodes{x}, Variables: gorgonia.Nodes{w}, Loss: gorgonia.Must(gorgonia.Mean(gorgonia.Must(gorgonia.Mul(x, w))))}, nil
		}
	}
	good := renamed("w", tensor.Shape{3, 2}, tensor.Float32)
	more := func(change func(m *Model)) Build {
		return func(g *gorgonia.ExprGraph, batch int) (Model, error) {
			m, err := good(g, batch)
			change(&m)
			return m, err
		}
	}
	for name, c := range map[string]struct {
		odd  Build
		want string
	}{
		"name":    {renamed("v", tensor.Shape{3, 2}, tensor.Float32), `variable 0 is named "v", not "w"`},
		"shape":   {renamed("w", tensor.Shape{2, 3}, tensor.Float32), `variable "w" has shape [2 3], not [3 2]`},
		"type":    {renamed("w", tensor.Shape{3, 2}, tensor.Float64), `variable "w" is float64, not float32`},
		"number":  {mlp(tensor.Float32, Mean, 8, 6, 3), "2 variables, not 1"},
		"loss":    {more(func(m *Model) { m.LossKind = Sum }), "loss kind sum, not mean"},
		"metrics": {more(func(m *Model) { m.Metrics = map[string]*gorgonia.Node{"m": m.Loss} }), "1 metrics, not 0"},
	} {
		t.Run(name, func(t *testing.T) {
			for _, at := range []architecture{{"ps", 1}, {"ps", 2}, {"allreduce", 0}, {"hybrid", 2}} {
				tj := newTestJobOn(t, threeHosts, at.servers, Arch(at.arch))
				refused(t, tj, func(j *Job) Build {
					if j.WorkerID() == 2 {
						return c.odd
					}
					return good
				}, SGD(0.1), c.want, "worker:2")
			}
		})
	}
}

func TestDifferentOptimisersAreRefused(t *testing.T) {
	tj := newTestJob(t, 2, 1, Arch("ps"))
	errs := tj.all(func(j *Job) error {
		_, err := j.Parallelize(t.Context(), regression{}.build, Momentum(0.1, 0.5+0.1*float64(j.WorkerID())), GlobalBatch(24))
		return err
	})
	for rank, err := range errs {
		if err == nil || !strings.Contains(err.Error(), "optimiser") || !strings.Contains(err.Error(), "worker:1") {
			t.Errorf("worker:%d: %v", rank, err)
		}
	}
}

// If bit-identical results were requested, Parallelize must reject hosts with
// different arithmetic and name both. Otherwise these hosts must train.
func TestHostsWithDifferentArithmeticAreRefused(t *testing.T) {
	for name, promise := range map[string]Setting{
		"virtual workers": VirtualWorkers(6),
		"digest":          flags(func(c *config.Config) { c.Digest = true }),
		"nothing":         {},
	} {
		for _, at := range layouts[1:] {
			tj := newTestJobOn(t, threeHosts, at.servers, Arch(at.arch), promise)
			for _, j := range tj.jobs {
				j.host.numerics = "openblas Haswell"
			}
			tj.jobs[2].host.numerics = "gonum"
			if name != "nothing" {
				refused(t, tj, func(*Job) Build { return regression{}.build }, SGD(0.1), `"gonum", not "openblas Haswell"`, "worker:2", "same bits")
				continue
			}
			x := everything()["mlp with dropout"]
			if _, err := x.together(tj); err != nil {
				t.Errorf("%s: %v", at.arch, err)
			}
		}
	}
}

// Impossible combinations of --arch and --sync must fail before the program
// reads its data. The error says why, and the hint what to do.
func TestImpossibleArchAndSyncAreRefused(t *testing.T) {
	for _, c := range []struct {
		arch, sync       string
		workers, servers int
		want             string // "": it works
	}{
		{"allreduce", "async", 2, 1, "--sync async with --arch allreduce: a worker that holds variables would hold up the others; use --arch ps"},
		{"hybrid", "async", 2, 1, "--sync async with --arch hybrid: a worker that holds variables would hold up the others; use --arch ps"},
		{"allreduce", "ssp:2", 2, 1, "--sync ssp:2 with --arch allreduce"},
		{"hybrid", "ssp:2", 2, 0, "--sync ssp:2 with --arch hybrid"},
		{"allreduce", "group:2", 2, 1, "--sync group:2 with --arch allreduce"},
		{"hybrid", "backup:1", 2, 1, "--sync backup:1 with --arch hybrid"},
		{"ps", "sync", 2, 0, "2 workers and no server to keep the variables on"},
		{"", "async", 2, 0, "2 workers and no server to keep the variables on"},
		{"ps", "group:2", 2, 0, "2 workers and no server to keep the variables on"},
		{"", "group:0", 2, 1, "--sync: synchronisation group:0: want 1 to 2 groups"},
		{"", "group:3", 2, 1, "--sync: synchronisation group:3: want 1 to 2 groups"},
		{"", "backup:2", 2, 1, "--sync: synchronisation backup:2: want 0 to 1 backup workers among 2"},
		{"auto", "async", 2, 1, ""},
		{"ps", "backup:1", 2, 1, ""},
		{"hybrid", "", 2, 0, ""},
		{"allreduce", "sync", 2, 0, ""},
		{"hybrid", "group:2", 1, 0, ""}, // alone
	} {
		conf := config.Default()
		conf.Arch, conf.Sync = c.arch, c.sync
		contract := soloContract
		contract.WorldSize, contract.Cluster.PS = c.workers, make([]string, c.servers)
		_, err := newJob(contract, conf, io.Discard, io.Discard, nil)
		if (err == nil) != (c.want == "") || err != nil && !strings.Contains(err.Error(), c.want) {
			t.Errorf("%+v: %v", c, err)
		}
	}
	tj := newTestJob(t, 2, 1, Sync("backup:1"))
	_, err := tj.jobs[0].Parallelize(t.Context(), regression{}.build, SGD(0.1), GlobalBatch(4), ClipNorm(1))
	if err == nil || !strings.Contains(err.Error(), "backup:1") || !strings.Contains(err.Error(), "norm") {
		t.Errorf("backup with clipping: %v", err)
	}
}

// The hints for a job without parameter servers must name flags with which the
// job can start.
func TestHintsForMissingServersWork(t *testing.T) {
	for _, c := range []struct{ arch, sync, hint string }{
		{"ps", "sync", "--arch allreduce"},
		{"ps", "async", "--sync sync --arch allreduce"},
		{"ps", "group:2", "--sync sync --arch allreduce"},
		{"", "async", "--sync sync"},
		{"auto", "group:2", "--sync sync"},
	} {
		conf := config.Default()
		conf.Arch, conf.Sync = c.arch, c.sync
		var helpful interface{ Hint() string }
		if err := conf.Suits(2, 0); !errors.As(err, &helpful) {
			t.Fatal(c, err)
		}
		if want := "--ps all, or train with " + c.hint; helpful.Hint() != want {
			t.Errorf("--arch %s --sync %s: %q, want %q", c.arch, c.sync, helpful.Hint(), want)
		}
		for words := strings.Fields(c.hint); len(words) > 0; words = words[2:] {
			*map[string]*string{"--arch": &conf.Arch, "--sync": &conf.Sync}[words[0]] = words[1]
		}
		if err := conf.Suits(2, 0); err != nil {
			t.Errorf("--arch %s --sync %s: after %q: %v", c.arch, c.sync, c.hint, err)
		}
	}
}

// Job and Parallelize must reject batches and numbers of workers that do not
// fit --virtual-workers.
func TestImpossibleVirtualWorkersAreRefused(t *testing.T) {
	var helpful interface{ Hint() string }
	for _, c := range []struct {
		virtual, replicas, accumulate, workers int
		want                                   string
	}{
		{3, 1, 1, 4, "4 workers, but 3 virtual workers: every worker needs at least one"},
		{8, 2, 1, 2, "--virtual-workers 8, but 2 workers times --replicas 2 times --accumulate 1 make 4"},
		{0, 1 << 40, 1 << 40, 2, "virtual workers"},
		{0, 1 << 32, 1 << 32, 1, "virtual workers"},
		{1 << 40, 1, 1, 1, "virtual workers"},
	} {
		conf := config.Default()
		conf.VirtualWorkers, conf.Replicas, conf.Accumulate = c.virtual, c.replicas, c.accumulate
		contract := soloContract
		contract.WorldSize = c.workers
		_, err := newJob(contract, conf, io.Discard, io.Discard, nil)
		if err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%+v: %v", c, err)
		}
		if c.virtual == 3 && (!errors.As(err, &helpful) || !strings.Contains(helpful.Hint(), "--virtual-workers to 4")) {
			t.Errorf("no hint: %v", err)
		}
	}
	j := soloJob(io.Discard, VirtualWorkers(5))
	_, err := j.Parallelize(context.Background(), regression{}.build, SGD(0.1), GlobalBatch(24))
	if err == nil || !strings.Contains(err.Error(), "24 rows cannot be divided over 5 virtual workers") ||
		!errors.As(err, &helpful) || helpful.Hint() != "use a batch of 25 rows (GlobalBatch, or the program's --batch-size), or --virtual-workers 6" {
		t.Errorf("got %v", err)
	}
}

// Step must reject invalid indices and labels, and tensors of other types,
// without changing anything.
func TestMistakesInIndicesAreNamed(t *testing.T) {
	j := soloJob(io.Discard, Replicas(2), Seed(3))
	r, err := j.Parallelize(t.Context(), words(3), SGD(0.1), GlobalBatch(4))
	if err != nil {
		t.Fatal(err)
	}
	good := sentences(0, 0, 4)
	index := func(change func(x []int64)) tensor.Tensor {
		x := append([]int64(nil), good["word"].Data().([]int64)...)
		change(x)
		return tensor.New(tensor.WithShape(len(x)), tensor.WithBacking(x))
	}
	before, err := r.variables.digest(t.Context(), r.Steps())
	if err != nil {
		t.Fatal(err)
	}
	for want, word := range map[string]tensor.Tensor{
		`lookup "word": index 37 at position 15, the table "table" has 37 rows`: index(func(x []int64) { x[15] = 37 }),
		`lookup "word": index -1 at position 3`:                                 index(func(x []int64) { x[3] = -1 }),
		`lookup "word": 8 indices, the model wants 16`:                          tensor.New(tensor.WithShape(8), tensor.WithBacking(make([]int64, 8))),
		`lookup "word": type float32: want int, int32 or int64`:                 dense(tensor.Float32, make([]float64, 16), 16),
		`the indices of lookup "word" are not fed`:                              nil,
	} {
		if _, err := r.Step(t.Context(), Feed{"word": word, "y": good["y"]}); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("got %v, want %q", err, want)
		}
	}
	if after, err := r.variables.digest(t.Context(), r.Steps()); err != nil || after != before {
		t.Errorf("a refused feed changed something: %v", err)
	}
	if _, err := r.Step(t.Context(), good); err != nil {
		t.Errorf("a good feed after bad ones: %v", err)
	}
}

// If workers have the same variables but other operations, they train
// different models, which Parallelize must reject.
func TestWorkersWithDifferentOperationsAreRefused(t *testing.T) {
	with := func(activation func(*gorgonia.Node) (*gorgonia.Node, error)) Build {
		return func(g *gorgonia.ExprGraph, batch int) (Model, error) {
			m, err := regression{}.build(g, batch)
			if err == nil {
				m.Loss, err = activation(m.Loss)
			}
			return m, err
		}
	}
	refused(t, newTestJob(t, 2, 1), func(j *Job) Build {
		if j.WorkerID() == 1 {
			return with(gorgonia.Square)
		}
		return with(gorgonia.Exp)
	}, SGD(0.1), "worker:1")
}
