package trainer

import (
	"bytes"
	"fmt"
	"io"
	"math"
	"regexp"
	"strconv"
	"strings"
	"testing"

	"gorgonia.org/gorgonia"
	"gorgonia.org/tensor"

	"github.com/plx-run/plx/trainer/cluster"
	"github.com/plx-run/plx/trainer/config"
	"github.com/plx-run/plx/trainer/nn/ops"
)

// lookedUp builds the model words, but with a variable instead of the
// embedding table. rows looks up rows of the variable with Gorgonia's
// operations.
func lookedUp(rows func(table, index *gorgonia.Node) (*gorgonia.Node, error)) func(seed uint64) Build {
	return func(seed uint64) Build {
		return func(g *gorgonia.ExprGraph, batch int) (Model, error) {
			l := &layers{g: g, seed: seed}
			table := gorgonia.NewMatrix(g, tensor.Float32, gorgonia.WithName("table"), gorgonia.WithShape(wordRows, wordWidth),
				gorgonia.WithInit(Uniform(seed, "table", -0.5, 0.5)))
			index := gorgonia.NewVector(g, tensor.Int, gorgonia.WithName("word"), gorgonia.WithShape(batch*wordLength))
			l.model.Variables, l.model.Inputs = gorgonia.Nodes{table}, gorgonia.Nodes{index}
			found := l.node(func() (*gorgonia.Node, error) { return rows(table, index) })
			found = l.node(func() (*gorgonia.Node, error) {
				return gorgonia.Reshape(found, tensor.Shape{batch, wordLength * wordWidth})
			})
			h := l.linear("first", found, wordLength*wordWidth, 8)
			h = l.node(func() (*gorgonia.Node, error) { return ops.Tanh(h) })
			return l.classify(l.linear("last", h, 8, 3), batch)
		}
	}
}

var lookups = map[string]func(table, index *gorgonia.Node) (*gorgonia.Node, error){
	"gorgonia.ByIndices": func(table, index *gorgonia.Node) (*gorgonia.Node, error) { return gorgonia.ByIndices(table, index, 0) },
	"nn.Rows":            ops.Rows,
}

// renumbered converts the indices in a feed to the type that Gorgonia expects.
func renumbered(feed func(step, from, to int) Feed) func(step, from, to int) Feed {
	return func(step, from, to int) Feed {
		f := feed(step, from, to)
		var index []int
		for _, row := range f["word"].Data().([]int64) {
			index = append(index, int(row))
		}
		f["word"] = tensor.New(tensor.WithShape(len(index)), tensor.WithBacking(index))
		return f
	}
}

var denseTables = flags(func(c *config.Config) { c.NoFindSparse = true })

// A variable of which the model only looks up rows must be trained like an
// Embedding, with the same bits, whichever tasks hold the rows.
func TestDetectedTableEqualsEmbedding(t *testing.T) {
	for how, rows := range lookups {
		t.Run(how, func(t *testing.T) {
			declared := trial{build: words, feed: sentences, opt: Adam(0.05), options: []Option{GlobalBatch(12), ClipNorm(0.5)}, steps: 6}
			found := declared
			found.build, found.feed = lookedUp(rows), renumbered(sentences)
			want := declared.alone(t, VirtualWorkers(4))
			if err := found.alone(t, VirtualWorkers(4)).same(want); err != nil {
				t.Errorf("alone: %v", err)
			}
			if found.alone(t, VirtualWorkers(4), denseTables).digest == want.digest {
				t.Error("a dense variable has the same bits: the test shows nothing")
			}
			for _, at := range layouts {
				tj := newTestJob(t, 2, at.servers, VirtualWorkers(4), Arch(at.arch), flags(func(c *config.Config) { c.BucketBytes, c.PartitionBytes = 3000, 300 }))
				done, err := found.together(tj)
				if err == nil {
					err = done.same(want)
				}
				if err != nil {
					t.Errorf("%s, %d servers: %v", at.arch, at.servers, err)
				}
				for _, said := range []string{`tables, because only rows of them are looked up: "table";`, `variable "table" [37 6]: sparse`} {
					if strings.Count(tj.logs[0].String(), said) != 1 {
						t.Errorf("the chief does not say %q once:\n%s", said, tj.logs[0])
					}
				}
			}
		})
	}
}

// With SGD, a variable that was turned into a table must get the same values
// as a dense one, because rows without a lookup have gradient 0.
func TestDetectedTableTrainsAsADenseVariable(t *testing.T) {
	x := trial{build: lookedUp(lookups["gorgonia.ByIndices"]), feed: renumbered(sentences), opt: SGD(0.5), options: []Option{GlobalBatch(12)}, steps: 30}
	found, err := x.together(newTestJob(t, 2, 1, Arch("hybrid")))
	if err != nil {
		t.Fatal(err)
	}
	dense, err := x.together(newTestJob(t, 2, 1, Arch("hybrid"), denseTables))
	if err != nil {
		t.Fatal(err)
	}
	for i, loss := range found.losses {
		if math.Abs(loss-dense.losses[i]) > 1e-5*dense.losses[i] {
			t.Errorf("step %d: loss %v, of a dense variable %v", i, loss, dense.losses[i])
		}
	}
	if found.losses[29] > 0.8*found.losses[0] {
		t.Errorf("losses %v", found.losses)
	}
}

// A variable that was turned into a table must be in checkpoints and in Values
// under its name, for any number of tasks.
func TestDetectedTableResumes(t *testing.T) {
	x := trial{build: lookedUp(lookups["gorgonia.ByIndices"]), feed: renumbered(sentences), opt: Momentum(0.1, 0.9), options: []Option{GlobalBatch(12)}}
	x.resumes(t, 3, shape{2, 1, []Setting{Arch("ps")}}, shape{2, 0, []Setting{Arch("allreduce")}}, shape{3, 2, []Setting{Arch("hybrid")}}, shape{1, 0, nil})
	r, err := soloJob(io.Discard).Parallelize(t.Context(), x.build(3), x.opt, x.options...)
	if err != nil {
		t.Fatal(err)
	}
	values, err := r.Values(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if got, want := fmt.Sprint(values["table"].Data()), fmt.Sprint(Uniform(3, "table", -0.5, 0.5)(tensor.Float32, wordRows, wordWidth)); got != want {
		t.Errorf("the table begins with %.80s, want %.80s", got, want)
	}
}

// A training whose variable became a table must not resume from a checkpoint
// in which it is dense.
func TestDenseCheckpointOfDetectedTableIsRefused(t *testing.T) {
	x := trial{build: lookedUp(ops.Rows), feed: renumbered(sentences), opt: SGD(0.1), options: []Option{GlobalBatch(12)}}
	dir := t.TempDir()
	if _, err := x.until(2, newTestJobOn(t, hostNames(1), 0, everySteps(dir, 1), restless(t), denseTables)); err != nil {
		t.Fatal(err)
	}
	_, err := x.until(4, newTestJobOn(t, hostNames(1), 0, everySteps(dir, 1), restless(t)))
	if err == nil || !strings.Contains(err.Error(), `variable "table" is dense in the checkpoint and sparse in this program`) {
		t.Errorf("got %v", err)
	}
	if _, err := x.until(4, newTestJobOn(t, hostNames(1), 0, everySteps(dir, 1), restless(t), denseTables)); err != nil {
		t.Error(err)
	}
}

// A variable that the model also uses otherwise must stay dense, and the chief
// logs the reason.
func TestVariablesWithOtherUsesStayDense(t *testing.T) {
	for want, spoil := range map[string]func(l *layers, table, index *gorgonia.Node) *gorgonia.Node{
		`"table": square uses it too`: func(l *layers, table, index *gorgonia.Node) *gorgonia.Node {
			rows := gorgonia.Must(gorgonia.ByIndices(table, index, 0))
			return gorgonia.Must(gorgonia.Add(gorgonia.Must(gorgonia.Sum(gorgonia.Must(gorgonia.Square(table)))), gorgonia.Must(gorgonia.Sum(rows))))
		},
		`"table": its indices are no input`: func(l *layers, table, index *gorgonia.Node) *gorgonia.Node {
			fixed := gorgonia.NewVector(l.g, tensor.Int, gorgonia.WithName("fixed"), gorgonia.WithShape(2), gorgonia.WithInit(gorgonia.Ones()))
			return gorgonia.Must(gorgonia.Sum(gorgonia.Must(ops.Rows(table, fixed))))
		},
		`"table": its value is wanted as a whole`: func(l *layers, table, index *gorgonia.Node) *gorgonia.Node {
			l.model.Fetches = map[string]*gorgonia.Node{"all": table}
			return gorgonia.Must(gorgonia.Sum(gorgonia.Must(ops.Rows(table, index))))
		},
		`"table": its indices are float32 of shape (2), and not a vector of int, int32 or int64`: func(l *layers, table, index *gorgonia.Node) *gorgonia.Node {
			floats := gorgonia.NewVector(l.g, tensor.Float32, gorgonia.WithName("floats"), gorgonia.WithShape(2))
			l.model.Inputs = gorgonia.Nodes{floats}
			return gorgonia.Must(gorgonia.Sum(gorgonia.Must(ops.Rows(table, floats))))
		},
	} {
		var log bytes.Buffer
		j := soloJob(&log)
		j.log.level = -8
		r, err := j.Parallelize(t.Context(), func(g *gorgonia.ExprGraph, batch int) (Model, error) {
			l := &layers{g: g, seed: 1, model: Model{LossKind: Mean}}
			index := gorgonia.NewVector(g, tensor.Int, gorgonia.WithName("index"), gorgonia.WithShape(batch))
			l.model.Inputs = gorgonia.Nodes{index}
			table := l.variable("table", 4, 3)
			l.model.Loss = spoil(l, table, index)
			return l.model, nil
		}, SGD(0.1), GlobalBatch(2))
		if err != nil {
			t.Fatalf("%s: %v", want, err)
		}
		if r.training.declared.Variables[0].Sparse != nil || !strings.Contains(log.String(), "rows are looked up of variable "+want+", so it is dense") {
			t.Errorf("want %q:\n%s", want, &log)
		}
	}
}

// Several lookups of one table and of two tables, some with the same indices,
// must all become lookups of table rows, although the graph also computes with
// the indices. A value of exactly the input's shape goes to every virtual
// worker.
func TestDetectedTablesShareIndices(t *testing.T) {
	build := func(uint64) Build {
		return func(g *gorgonia.ExprGraph, batch int) (Model, error) {
			l := &layers{g: g, seed: 1, model: Model{LossKind: Mean}} // the number of indices equals the number of this worker's rows
			a, b := l.variable("a", 5, 3), l.variable("b", 5)
			index := gorgonia.NewVector(g, tensor.Int, gorgonia.WithName("index"), gorgonia.WithShape(2))
			x := gorgonia.NewMatrix(g, tensor.Float32, gorgonia.WithName("x"), gorgonia.WithShape(batch, 3))
			l.model.Inputs = gorgonia.Nodes{x, index}
			rows := gorgonia.Must(gorgonia.Mul(x, gorgonia.Must(gorgonia.Transpose(gorgonia.Must(gorgonia.ByIndices(a, index, 0)))))) // (batch, 2)
			loss := gorgonia.Must(gorgonia.Mean(gorgonia.Must(gorgonia.Square(rows))))
			for _, v := range []*gorgonia.Node{gorgonia.Must(gorgonia.ByIndices(b, index, 0)), gorgonia.Must(ops.Rows(a, index))} {
				loss = gorgonia.Must(gorgonia.Add(loss, gorgonia.Must(gorgonia.Sum(gorgonia.Must(gorgonia.Square(v))))))
			}
			l.model.Loss, l.model.Fetches = loss, map[string]*gorgonia.Node{"index": index}
			return l.model, nil
		}
	}
	feed := func(step, from, to int) Feed {
		x := make([]float64, 3*(to-from))
		for i := range x {
			x[i] = math.Sin(float64(step + 3*from + i))
		}
		return Feed{"x": dense(tensor.Float32, x, to-from, 3), "index": tensor.New(tensor.WithBacking([]int{step % 5, 3}))}
	}
	x := trial{build: build, feed: feed, opt: SGD(0.1), options: []Option{GlobalBatch(8)}, steps: 4}
	want := x.alone(t, VirtualWorkers(4))
	done, err := x.together(newTestJob(t, 2, 1, VirtualWorkers(4)))
	if err == nil {
		err = done.same(want)
	}
	if err != nil {
		t.Error(err)
	}
	plain := x.alone(t, VirtualWorkers(4), denseTables)
	for i, loss := range want.losses {
		if math.Abs(loss-plain.losses[i]) > 1e-5*plain.losses[i] {
			t.Errorf("step %d: loss %v, of dense variables %v", i, loss, plain.losses[i])
		}
	}
}

// --combine-rows must apply only to tables that do not set Embedding.Combine.
func TestCombineRowsAppliesToTablesWithoutCombine(t *testing.T) {
	with := func(c Combine) func(seed uint64) Build {
		return func(seed uint64) Build {
			return func(g *gorgonia.ExprGraph, batch int) (Model, error) {
				m, err := words(seed)(g, batch)
				m.Embeddings[0].Combine = c
				return m, err
			}
		}
	}
	x := trial{feed: sentences, opt: SGD(0.1), options: []Option{GlobalBatch(12)}, steps: 3}
	digest := func(c Combine, flag string) string {
		x.build = with(c)
		return x.alone(t, VirtualWorkers(4), flags(func(c *config.Config) { c.CombineRows = flag })).digest
	}
	add, average := digest(AddRows, "loss"), digest(AverageRows, "loss")
	if add == average {
		t.Fatal("a sum and a mean are the same: the test shows nothing")
	}
	for _, c := range []struct {
		own  Combine
		flag string
		want string
	}{{ByLoss, "loss", average}, {ByLoss, "add", add}, {ByLoss, "average", average}, {AverageRows, "add", average}, {AddRows, "average", add}} {
		if got := digest(c.own, c.flag); got != c.want {
			t.Errorf("%+v: %s", c, got)
		}
	}
}

// With NoLocalAggregation every worker must send its own gradients, and the
// bits must stay the same.
func TestNoLocalAggregationHasSameBits(t *testing.T) {
	x := trial{build: words, feed: sentences, opt: Adam(0.05), options: []Option{GlobalBatch(12)}, steps: 3}
	hosts := []string{"127.0.0.2", "127.0.0.2", "127.0.0.3", "127.0.0.3"}
	var received [2]uint64
	var digests [2]string
	for i, together := range []bool{true, false} {
		tj := newTestJobOn(t, hosts, 1, VirtualWorkers(4), Arch("ps"), flags(func(c *config.Config) { c.NoLocalAggregation = !together }))
		done, err := x.together(tj)
		if err != nil {
			t.Fatal(err)
		}
		digests[i] = done.digest
		r := tj.jobs[1].session.Load() // connection to the first worker of the same host, or to the server
		if added := r.training.declared.Hosts != nil; added != together {
			t.Errorf("local aggregation %t: %t", together, added)
		}
		for _, c := range r.client.Traffic() {
			if c.Peer.Role == cluster.PS {
				received[i] += c.Sent
			}
		}
	}
	if digests[0] != digests[1] || received[0] >= received[1] {
		t.Errorf("digests %v, bytes from worker:1 to the server %v", digests, received)
	}
}

// MinPartitions and MaxPartitions must limit the first number of partitions
// and the numbers that the autotuner tries.
func TestPartitionLimitsBoundTheSearch(t *testing.T) {
	x := trial{build: divided, feed: sentences, opt: SGD(0.1), options: []Option{GlobalBatch(12)}, steps: 150}
	tj := newTestJobOn(t, hostNames(2), 2, VirtualWorkers(4), Arch("ps"), restless(t),
		flags(func(c *config.Config) { c.MinPartitions, c.MaxPartitions = 3, 5 }))
	first := 0
	x.tuned = func(r *Session) {
		if r.job.IsChief() {
			for _, p := range r.training.declared.Pieces {
				if r.training.declared.Variables[p.Variable].Sparse != nil {
					first++
				}
			}
		}
	}
	if _, err := x.together(tj); err != nil {
		t.Fatal(err)
	}
	said := tj.logs[0].String()
	tried := regexp.MustCompile(`P +(\d+): `).FindAllStringSubmatch(said, -1)
	for _, p := range tried {
		if n, _ := strconv.Atoi(p[1]); n < 3 || n > 5 {
			t.Errorf("P = %d was tried", n)
		}
	}
	if first != 3 || len(tried) < 2 {
		t.Errorf("%d partitions at first, %d tried:\n%s", first, len(tried), said)
	}
}
