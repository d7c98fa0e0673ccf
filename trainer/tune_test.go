package trainer

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"gorgonia.org/gorgonia"
	"gorgonia.org/tensor"

	"github.com/plx-run/plx/trainer/autotune"
	"github.com/plx-run/plx/trainer/cluster"
	"github.com/plx-run/plx/trainer/config"
	"github.com/plx-run/plx/trainer/exchange/client"
	"github.com/plx-run/plx/trainer/exchange/transition"
	"github.com/plx-run/plx/trainer/layout"
	"github.com/plx-run/plx/trainer/nn/ops"
	"github.com/plx-run/plx/trainer/random"
)

// restless returns a setting that makes the autotuner decide after a few
// steps.
func restless(t *testing.T) Setting {
	dir := t.TempDir()
	return flags(func(c *config.Config) { c.TuneAfterSteps, c.Report, c.ProfileDir = 3, 20, dir })
}

// hostNames returns the addresses of n hosts, each with one worker and one
// server.
func hostNames(n int) (all []string) {
	for i := range n {
		all = append(all, fmt.Sprintf("127.0.0.%d", i+2))
	}
	return all
}

// divided builds the model words with a table whose number of partitions the
// trainer may choose.
func divided(seed uint64) Build {
	build := words(seed)
	return func(g *gorgonia.ExprGraph, batch int) (Model, error) {
		m, err := build(g, batch)
		m.Embeddings[0].Partitioner = Partitioner(1)
		return m, err
	}
}

// The autotuner's search for a number of partitions must end during the
// training, in every architecture. This holds even if some workers have less
// data. The weights must have the bits of a single process.
func TestSearchKeepsTheBits(t *testing.T) {
	if testing.Short() {
		t.Skip("takes seconds")
	}
	testSearch(t, map[string][]string{"adam": {"ps", "auto"}, "adagrad": {"hybrid", "allreduce"}})
}

// testSearch tests the search with each optimiser in archs, and the
// architectures listed for it.
func testSearch(t *testing.T, archs map[string][]string) {
	for name, opt := range map[string]Optimizer{"adam": Adam(0.01), "adagrad": Adagrad(0.1)} {
		t.Run(name, func(t *testing.T) {
			x := trial{build: divided, feed: sentences, opt: opt, options: []Option{GlobalBatch(12), ClipNorm(0.5)}, steps: 200}
			want := x.alone(t, VirtualWorkers(6))
			for _, arch := range archs[name] {
				tj := newTestJobOn(t, hostNames(3), 3, VirtualWorkers(6), Arch(arch), restless(t),
					flags(func(c *config.Config) { c.MaxPartitions = 4 })) // few numbers to try, so that the search ends within the steps of the test
				done, err := x.together(tj)
				if err == nil {
					err = done.same(want)
				}
				if err != nil {
					t.Errorf("%s: %v", arch, err)
				}
				said := tj.logs[0].String()
				for _, want := range []string{"choice P = ", ", measured over "} {
					if !strings.Contains(said, want) {
						t.Errorf("%s: the chief does not say %q:\n%s", arch, want, said)
					}
				}
			}
		})
	}
}

// With --arch auto, a table of which all rows are looked up must move from the
// servers to the workers. A table with few lookups must stay. The bits must
// not change.
func TestAutoArchFollowsDensity(t *testing.T) {
	for rows, role := range map[int]cluster.Role{8: cluster.Worker, 4000: cluster.PS} {
		build := func(seed uint64) Build {
			return lookupOf(func() *Embedding {
				return &Embedding{Name: "table", Rows: rows, Width: 16, First: UniformRows(seed, -1, 1)}
			}, 8)
		}
		feed := func(step, from, to int) Feed {
			var index []int64
			for i := from; i < to; i++ {
				for k := range 8 {
					index = append(index, int64((i+k+step)%8*(rows/8)))
				}
			}
			target := tensor.New(tensor.WithShape(len(index), 16), tensor.WithBacking(make([]float32, 16*len(index))))
			return Feed{"row": tensor.New(tensor.WithBacking(index)), "target": target}
		}
		x := trial{build: build, feed: feed, opt: Momentum(0.1, 0.9), options: []Option{GlobalBatch(4)}, steps: 30}
		want := x.alone(t, VirtualWorkers(4))
		tj := newTestJobOn(t, hostNames(2), 2, VirtualWorkers(4), Arch("auto"), restless(t))
		done, err := x.together(tj)
		if err == nil {
			err = done.same(want)
		}
		if err != nil {
			t.Errorf("%d rows: %v", rows, err)
		}
		d := tj.jobs[1].session.Load().training.declared
		for _, p := range d.Pieces {
			if d.Holders[p.Holder].Role != role {
				t.Errorf("%d rows: %+v is on %s", rows, p, d.Holders[p.Holder])
			}
		}
	}
}

// The autotuner must distribute frequently used rows over several servers.
func TestLoadIsBalanced(t *testing.T) {
	x := trial{build: divided, feed: sentences, opt: SGD(0.1), options: []Option{GlobalBatch(12)}, steps: 30}
	hot := func(settings ...Setting) float64 {
		tj := newTestJobOn(t, hostNames(4), 4, append(settings, Arch("hybrid"), restless(t), flags(func(c *config.Config) { c.Partitions = 4 }))...)
		if _, err := x.together(tj); err != nil {
			t.Fatal(err)
		}
		counts := make([]int, wordRows)
		for step := range x.steps {
			for _, row := range sentences(step, 0, 12)["word"].Data().([]int64) {
				counts[row]++
			}
		}
		d := tj.jobs[0].session.Load().training.declared
		loads := make([]float64, len(d.Holders))
		for _, p := range d.Pieces {
			for row := p.Offset; p.Variable == len(d.Variables)-1 && row < p.Offset+p.Count; row++ {
				loads[p.Holder] += float64(min(counts[row], 4*x.steps))
			}
		}
		total := 0.0
		for _, load := range loads {
			total += load
		}
		return slices.Max(loads) / total
	}
	load, bytes := hot(), hot(flags(func(c *config.Config) { c.Balance = "bytes" }))
	if load > 0.45 || bytes < 0.6 {
		t.Errorf("the busiest of four servers has %.2f of the rows that travel; placed by size it has %.2f", load, bytes)
	}
}

// A worker without data must still take part in the autotuner's exchange.
func TestWorkersWithoutDataJoinTuning(t *testing.T) {
	tj := newTestJobOn(t, hostNames(3), 3, Arch("hybrid"), restless(t), flags(func(c *config.Config) { c.CheckParameters = 4 }))
	errs := tj.all(func(j *Job) error {
		r, err := j.Parallelize(t.Context(), divided(1), SGD(0.1), GlobalBatch(6), AtEndOfData(JoinOthers))
		if err != nil {
			return err
		}
		from, to := r.Rows()
		for r.Steps() < 20*(j.WorkerID()+1) {
			if _, err := r.Step(t.Context(), sentences(r.Steps(), from, to)); err != nil {
				return err
			}
		}
		return r.join(t.Context())
	})
	if err := errors.Join(append(errs, tj.wait())...); err != nil {
		t.Fatal(err)
	}
	if steps := tj.jobs[0].session.Load().Steps(); steps != 60 {
		t.Errorf("%d steps, want 60", steps)
	}
}

// The network traffic per step that the autotuner measures must agree with its
// cost formulas to 10 %. With n hosts, a dense variable of w bytes costs
// 2(n-1)/n·w. A table costs the same for the rows that a step looks up, plus
// their indices.
func TestMeasuredBytesEqualFormulas(t *testing.T) {
	const rows, width, each = 20_000, 32, 30
	build := func(seed uint64) Build {
		return func(g *gorgonia.ExprGraph, batch int) (Model, error) {
			l := &layers{g: g, seed: seed}
			table := &Embedding{Name: "table", Rows: rows, Width: width, First: UniformRows(seed, -0.5, 0.5)}
			l.model.Embeddings = []*Embedding{table}
			found := l.node(func() (*gorgonia.Node, error) { return table.Lookup(g, "word", batch*each) })
			found = l.node(func() (*gorgonia.Node, error) { return gorgonia.Reshape(found, tensor.Shape{batch, each * width}) })
			return l.classify(l.linear("last", found, each*width, 3), batch)
		}
	}
	feed := func(step, from, to int) Feed {
		f := sentences(step, from, to)
		var index []int64
		for i := range (to - from) * each {
			bits := random.New(uint64(step), "drawn").Bits(uint64(from*each + i))
			index = append(index, int64(bits[0]%rows))
		}
		f["word"] = tensor.New(tensor.WithBacking(index))
		return f
	}
	const hosts, drawn = 3, 24 / 3 * each
	touched := rows * (1 - math.Pow(1-1.0/rows, drawn))
	index := 1 + math.Pow(1-touched/rows, 128)
	way := 2.0 * (hosts - 1) / hosts
	table, last := way*touched*(4*width+1.5*index), way*each*width*3*4
	x := trial{build: build, feed: feed, opt: SGD(0.1), options: []Option{GlobalBatch(24)}, steps: 30}
	for _, arch := range []string{"ps", "hybrid"} {
		tj := newTestJobOn(t, hostNames(hosts), hosts, Arch(arch), restless(t), flags(func(c *config.Config) { c.PartitionBytes = 4096 }))
		if _, err := x.together(tj); err != nil {
			t.Fatal(err)
		}
		said := tj.logs[0].String()
		_, measured, _ := strings.Cut(said, "busiest link, measured over ")
		for pattern, want := range map[string]float64{`table .* % +(\S+) kB  ps`: table, `last.w .*  (\S+) kB  `: last, `mean over hosts: (\S+) kB`: table + last} {
			found := regexp.MustCompile(pattern).FindStringSubmatch(measured)
			if found == nil {
				t.Fatalf("%s: no %q in\n%s", arch, pattern, said)
			}
			if got, err := strconv.ParseFloat(found[1], 64); err != nil || math.Abs(1000*got-want) > want/10 {
				t.Errorf("%s: %s: got %s kB, want %.0f bytes:\n%s", arch, pattern, found[1], want, said)
			}
		}
	}
}

// The chief must report unusual variables: a dense one of which few rows have
// a gradient, a table of which all rows are looked up, and a server with most
// of the load.
func TestUnusualVariablesAreReported(t *testing.T) {
	build := func(seed uint64) Build {
		return func(g *gorgonia.ExprGraph, batch int) (Model, error) {
			l := &layers{g: g, seed: seed}
			small := &Embedding{Name: "small", Rows: 4, Width: 16, First: UniformRows(seed, -0.5, 0.5)}
			skewed := &Embedding{Name: "skewed", Rows: 4000, Width: 16, First: UniformRows(seed, -0.5, 0.5)}
			l.model.Embeddings = []*Embedding{small, skewed}
			large := l.variable("large", 1000, 16)
			index := gorgonia.NewTensor(g, tensor.Int64, 1, gorgonia.WithName("of large"), gorgonia.WithShape(batch*wordLength))
			l.model.Inputs = append(l.model.Inputs, index)
			sum := l.node(func() (*gorgonia.Node, error) { return ops.Rows(large, index) })
			for _, e := range l.model.Embeddings {
				rows := l.node(func() (*gorgonia.Node, error) { return e.Lookup(g, "of "+e.Name, batch*wordLength) })
				sum = l.node(func() (*gorgonia.Node, error) { return gorgonia.Add(sum, rows) })
			}
			sum = l.node(func() (*gorgonia.Node, error) { return gorgonia.Reshape(sum, tensor.Shape{batch, wordLength * 16}) })
			return l.classify(l.linear("last", sum, wordLength*16, 3), batch)
		}
	}
	feed := func(step, from, to int) Feed {
		f := Feed{"y": sentences(step, from, to)["y"]}
		for name, rows := range map[string]int{"large": 20, "small": 4, "skewed": 300} {
			var index []int64
			for i := range (to - from) * wordLength {
				index = append(index, int64((from*wordLength+i+step)%rows))
			}
			f["of "+name] = tensor.New(tensor.WithBacking(index))
		}
		return f
	}
	x := trial{build: build, feed: feed, opt: SGD(0.1), options: []Option{GlobalBatch(24)}, steps: 25}
	tj := newTestJobOn(t, hostNames(4), 4, Arch("hybrid"), restless(t), flags(func(c *config.Config) { c.Balance, c.PartitionBytes, c.NoFindSparse = "bytes", 4096, true }))
	if _, err := x.together(tj); err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{"large looks sparse: 2 % of its gradient's rows", "small is sparse, yet a worker touches 100 % of its rows", " is hot: ", "of it is skewed"} {
		if said := tj.logs[0].String(); !strings.Contains(said, want) {
			t.Errorf("no %q in\n%s", want, said)
		}
	}
}

// crowded simulates shard holders, one of which has room for only a few
// partitions.
type crowded struct {
	*client.Placement
	asked *int
}

func (c crowded) Room(ctx context.Context, pieces []layout.Piece) error {
	if *c.asked++; *c.asked > 1 && len(pieces) < 4+3 {
		return &transition.RoomError{Holder: cluster.Task{Role: cluster.PS, Index: 1}, Need: 2 << 30, Free: 1 << 30}
	}
	return c.Placement.Room(ctx, pieces)
}

// The autotuner must skip a number of partitions that some shard holder has no
// room for, and log that.
func TestImpossiblePartitionsAreSkipped(t *testing.T) {
	x := trial{build: divided, feed: sentences, opt: SGD(0.1), options: []Option{GlobalBatch(12)}, steps: 400} // enough steps to try every number of partitions
	want := x.alone(t, VirtualWorkers(6))
	tj := newTestJobOn(t, hostNames(3), 3, Arch("ps"), VirtualWorkers(6), restless(t))
	asked := 0
	done := make([]trained, 3)
	errs := tj.all(func(j *Job) (err error) {
		y := x
		y.tuned = func(r *Session) {
			c := r.training.tuning(j.network, r.client.Placement, 0, nil)
			c.Holders = crowded{r.client.Placement, &asked}
			r.worker.tuner = autotune.New(c)
		}
		done[j.WorkerID()], err = y.run(j)
		return err
	})
	if err := errors.Join(append(errs, tj.wait(), done[0].same(want))...); err != nil {
		t.Error(err)
	}
	if said := tj.logs[0].String(); !strings.Contains(said, "left out: ps:1 has no room") || !strings.Contains(said, "choice P = ") {
		t.Errorf("it does not say what was left out:\n%s", said)
	}
}

func TestPartitionsNeedAPartitioner(t *testing.T) {
	j := soloJob(io.Discard, flags(func(c *config.Config) { c.Partitions = 3 }))
	if _, err := j.Parallelize(t.Context(), words(1), SGD(0.1), GlobalBatch(2)); err == nil || !strings.Contains(err.Error(), "--partitions 3: no embedding") {
		t.Errorf("got %v", err)
	}
	if _, err := j.Parallelize(t.Context(), divided(1), SGD(0.1), GlobalBatch(2)); err != nil {
		t.Error(err)
	}
}
