package trainer

import (
	"bytes"
	"context"
	"errors"
	"io"
	"log/slog"
	"strings"
	"testing"

	"github.com/plx-run/plx/internal/test/patience"
	"github.com/plx-run/plx/trainer/cluster"
	"github.com/plx-run/plx/trainer/nn/ops"
	"gorgonia.org/gorgonia"
	"gorgonia.org/tensor"
)

// Parallelize must reject each of these invalid models, with an error that
// names the mistake and the node.
func TestModelMistakesAreNamed(t *testing.T) {
	good := mlp(tensor.Float32, Mean, 8, 6, 3)
	spoil := func(change func(g *gorgonia.ExprGraph, m *Model)) Build {
		return func(g *gorgonia.ExprGraph, batch int) (Model, error) {
			m, err := good(g, batch)
			change(g, &m)
			return m, err
		}
	}
	const addsUp = "the loss adds up the rows of the batch, and Model.LossKind is not set"
	unkind := func(loss func(m *Model) *gorgonia.Node) Build {
		return spoil(func(_ *gorgonia.ExprGraph, m *Model) { m.LossKind, m.Loss = unset, loss(m) })
	}
	total := func(n *gorgonia.Node) *gorgonia.Node { return gorgonia.Must(gorgonia.Sum(n)) }
	lonely := func(g *gorgonia.ExprGraph, options ...gorgonia.NodeConsOpt) *gorgonia.Node {
		return gorgonia.NewMatrix(g, tensor.Float32, append([]gorgonia.NodeConsOpt{gorgonia.WithName("lonely"), gorgonia.WithShape(2, 2)}, options...)...)
	}
	for _, c := range []struct {
		want    string
		build   Build
		options []Option
	}{
		{"has no loss", spoil(func(_ *gorgonia.ExprGraph, m *Model) { m.Loss = nil }), nil},
		{"the loss has shape", spoil(func(_ *gorgonia.ExprGraph, m *Model) { m.Loss = m.Fetches["logits"] }), nil},
		{"has no variables", spoil(func(_ *gorgonia.ExprGraph, m *Model) { m.Variables = nil }), nil},
		{"embedding 1 is nil", spoil(func(_ *gorgonia.ExprGraph, m *Model) { m.Embeddings = []*Embedding{{}, nil} }), nil},
		{`embedding "idle" is never looked up`, spoil(func(_ *gorgonia.ExprGraph, m *Model) { m.Embeddings = []*Embedding{{Name: "idle"}} }), nil},
		{`"lonely" gets no gradient`, spoil(func(g *gorgonia.ExprGraph, m *Model) {
			m.Variables = append(m.Variables, lonely(g, gorgonia.WithInit(Zeros())))
		}), nil},
		{`"lonely" has no value`, spoil(func(g *gorgonia.ExprGraph, m *Model) {
			m.Variables = append(m.Variables, lonely(g))
		}), nil},
		{`the loss needs "y"`, spoil(func(_ *gorgonia.ExprGraph, m *Model) { m.Inputs = m.Inputs[:1] }), nil},
		{"is computed", spoil(func(_ *gorgonia.ExprGraph, m *Model) { m.Inputs[0] = m.Fetches["logits"] }), nil},
		{"distinct names", spoil(func(_ *gorgonia.ExprGraph, m *Model) { m.Inputs = append(m.Inputs, m.Inputs[0]) }), nil},
		{"input or variable 1 is nil", spoil(func(_ *gorgonia.ExprGraph, m *Model) { m.Inputs[1] = nil }), nil},
		{"LossKind(7)", spoil(func(_ *gorgonia.ExprGraph, m *Model) { m.LossKind = 7 }), nil},
		{addsUp, mlp(tensor.Float32, unset, 8, 6, 3), nil}, // its sign aside
		{addsUp, unkind(func(m *Model) *gorgonia.Node {
			return gorgonia.Must(ops.SumCrossEntropy(m.Fetches["logits"], m.Inputs[1]))
		}), nil},
		{addsUp, unkind(func(m *Model) *gorgonia.Node { return total(m.Fetches["logits"]) }), nil},
		{addsUp, unkind(func(m *Model) *gorgonia.Node {
			return gorgonia.Must(gorgonia.Mul(gorgonia.NewConstant(float32(0.5)), total(m.Fetches["logits"])))
		}), nil},
		{addsUp, unkind(func(m *Model) *gorgonia.Node {
			return gorgonia.Must(gorgonia.Mean(gorgonia.Must(gorgonia.Sum(m.Fetches["logits"], 0))))
		}), nil},
		{addsUp, func(g *gorgonia.ExprGraph, batch int) (Model, error) { // ambiguous: the constant may be the batch size or not
			m, err := good(g, batch)
			m.LossKind = unset
			return m, err
		}, nil},
		{"the graph does not tell, because of + of a sum", unkind(func(m *Model) *gorgonia.Node {
			return gorgonia.Must(gorgonia.Add(total(m.Fetches["logits"]), total(m.Variables[0])))
		}), nil},
		{"frozen node 0 is no leaf", spoil(func(_ *gorgonia.ExprGraph, m *Model) { m.Frozen = gorgonia.Nodes{m.Loss} }), nil},
		{`"w0" is in Model.Frozen, and also`, spoil(func(_ *gorgonia.ExprGraph, m *Model) { m.Frozen = m.Variables[:1] }), nil},
		{"no file", func(*gorgonia.ExprGraph, int) (Model, error) { return Model{}, errors.New("no file") }, nil},
		{"-3 rows", good, []Option{GlobalBatch(-3)}},
		{"cannot be divided over 2 virtual workers", good, []Option{GlobalBatch(7)}},
		{"PeerTimeout", good, []Option{GlobalBatch(4), PeerTimeout(-1)}},
	} {
		tj := newTestJob(t, 2, 1)
		// The other tasks of this job do not run, so a mistake that
		// Parallelize does not notice makes it wait for them.
		ctx, cancel := context.WithTimeout(t.Context(), patience.Limit)
		_, err := tj.jobs[0].Parallelize(ctx, c.build, SGD(0.1), append([]Option{GlobalBatch(4)}, c.options...)...)
		cancel()
		if err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("got %v, want %q", err, c.want)
		}
	}
}

// If the loss does not grow with the number of rows, LossKind need not be set
// and counts as Mean.
func TestUnsetLossKindIsAMean(t *testing.T) {
	ended := func(end func(rows *gorgonia.Node, m Model) (*gorgonia.Node, error)) Build {
		return func(g *gorgonia.ExprGraph, batch int) (Model, error) {
			m, err := mlp(tensor.Float32, Mean, 8, 3)(g, batch)
			if err == nil {
				m.LossKind = unset
				m.Loss, err = end(gorgonia.Must(gorgonia.Square(m.Fetches["logits"])), m)
			}
			return m, err
		}
	}
	for name, build := range map[string]Build{
		"mean": linear,
		"mean and penalty": ended(func(rows *gorgonia.Node, m Model) (*gorgonia.Node, error) {
			return gorgonia.Add(gorgonia.Must(gorgonia.Mean(rows)), gorgonia.Must(gorgonia.Sum(m.Variables[0])))
		}),
		"sum of means": ended(func(rows *gorgonia.Node, _ Model) (*gorgonia.Node, error) {
			return gorgonia.Sum(gorgonia.Must(gorgonia.Mean(rows, 0)))
		}),
		"sum by the rows": ended(func(rows *gorgonia.Node, _ Model) (*gorgonia.Node, error) {
			n := gorgonia.Must(gorgonia.SizeOf(0, rows))
			return gorgonia.HadamardDiv(gorgonia.Must(gorgonia.Sum(rows)), n)
		}),
	} {
		s, err := soloJob(io.Discard).Parallelize(t.Context(), build, SGD(0.1), GlobalBatch(4))
		if err != nil || s.training.declared.Sum || s.training.model.LossKind != Mean {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// The chief must warn once of a leaf with a value and a gradient that is
// neither in Variables nor in Frozen. A leaf that is used only in labels or
// comparisons has no gradient, and so no warning.
func TestForgottenVariablesAreNamed(t *testing.T) {
	for name, c := range map[string]struct {
		change func(m *Model)
		want   int
	}{
		"forgotten": {func(m *Model) { m.Variables = m.Variables[:1] }, 1},
		"frozen":    {func(m *Model) { m.Variables, m.Frozen = m.Variables[:1], m.Variables[1:] }, 0},
		"listed":    {func(*Model) {}, 0},
		"compared": {func(m *Model) {
			limit := gorgonia.NewScalar(m.Loss.Graph(), tensor.Float32, gorgonia.WithName("w1"), gorgonia.WithValue(float32(2)))
			small := gorgonia.Must(gorgonia.Lt(m.Loss, limit, true))
			m.Variables, m.Frozen = m.Variables[:1], m.Variables[1:]
			m.Loss = gorgonia.Must(gorgonia.Mul(m.Loss, small))
		}, 0},
	} {
		var log bytes.Buffer
		s, err := soloJob(&log, Config{Replicas: 2}).Parallelize(t.Context(), func(g *gorgonia.ExprGraph, batch int) (Model, error) {
			m, err := mlp(tensor.Float32, Mean, 8, 6, 3)(g, batch)
			c.change(&m)
			return m, err
		}, SGD(0.1), GlobalBatch(4))
		if err != nil {
			t.Errorf("%s: %v", name, err)
			continue
		}
		if got := strings.Count(log.String(), `"w1" has a value and a gradient, but is not trained`); got != c.want {
			t.Errorf("%s: named %d times, want %d:\n%s", name, got, c.want, &log)
		}
		if _, err := s.Step(t.Context(), rows(tensor.Float32, 0, 0, 4, 8, 3)); err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func TestHintsSayWhatToDo(t *testing.T) {
	tj := newTestJob(t, 3, 1)
	var helpful interface{ Hint() string }
	_, err := tj.jobs[0].Parallelize(context.Background(), mlp(tensor.Float32, Mean, 8, 3), SGD(0.1))
	if !errors.As(err, &helpful) || !strings.Contains(err.Error(), "batch size is not known") || !strings.Contains(helpful.Hint(), "GlobalBatch: rows") {
		t.Errorf("got %v", err)
	}
	_, err = tj.jobs[0].Parallelize(context.Background(), mlp(tensor.Float32, Mean, 8, 3), SGD(0.1), GlobalBatch(64))
	if !errors.As(err, &helpful) || !strings.Contains(helpful.Hint(), "66 rows") {
		t.Errorf("got %v", err)
	}
}

// Parallelize can set fields that Main has not set, except those that Main has
// already used, such as the seed.
func TestParallelizeCompletesConfigOfMain(t *testing.T) {
	j := soloJob(io.Discard, Config{Seed: 3, ClipNorm: 1, StopAtStep: 9})
	var helpful interface{ Hint() string }
	_, err := j.Parallelize(t.Context(), regression{}.build, SGD(0.1), Config{GlobalBatch: 4, Seed: 4})
	if !errors.As(err, &helpful) || !strings.Contains(err.Error(), "Seed is 4, but the job has begun with 3") || !strings.Contains(helpful.Hint(), "trainer.Main") {
		t.Errorf("another seed: %v", err)
	}
	s, err := j.Parallelize(t.Context(), regression{}.build, SGD(0.1), Config{GlobalBatch: 4, Seed: 3}, Config{StopAtStep: 2})
	if err != nil {
		t.Fatal(err)
	}
	if c := s.training.config; c.GlobalBatch != 4 || c.ClipNorm != 1 || c.StopAtStep != 2 || j.Seed() != 3 {
		t.Errorf("got %+v", c.Config)
	}
	if n := s.Parameters(); n != 3 {
		t.Errorf("%d parameters, want 3", n)
	}
	for range s.Train(t.Context(), 9, func(step int) (Feed, error) { return regression{}.feed(step, 0, 4), nil }) {
	}
	if s.Steps() != 2 {
		t.Errorf("%d steps, want the 2 of Parallelize", s.Steps())
	}
}

func TestBadSettingsOfAnOptimiser(t *testing.T) {
	j := soloJob(io.Discard)
	_, err := j.Parallelize(context.Background(), mlp(tensor.Float32, Mean, 8, 3), Momentum(0.1, 1.5), GlobalBatch(4))
	if err == nil || !strings.Contains(err.Error(), "momentum is 1.5") {
		t.Errorf("got %v", err)
	}
}

func TestOneSessionPerJob(t *testing.T) {
	j := soloJob(io.Discard)
	for i, want := range []bool{true, false} {
		_, err := j.Parallelize(context.Background(), mlp(tensor.Float32, Mean, 8, 3), SGD(0.1), GlobalBatch(4))
		if (err == nil) != want {
			t.Errorf("call %d: %v", i, err)
		}
	}
}

// Step must reject an invalid feed without changing anything, so that a valid
// feed succeeds afterwards.
func TestFeedMistakesAreNamed(t *testing.T) {
	j := soloJob(io.Discard)
	ctx := context.Background()
	r, err := j.Parallelize(ctx, mlp(tensor.Float32, Mean, 8, 6, 3), SGD(0.1), GlobalBatch(4))
	if err != nil {
		t.Fatal(err)
	}
	feed := func(x, y tensor.Tensor) Feed { return Feed{"x": x, "y": y} }
	x, y := dense(tensor.Float32, make([]float64, 32), 4, 8), dense(tensor.Float32, make([]float64, 12), 4, 3)
	for want, f := range map[string]Feed{
		`input "y" is not fed`:                       {"x": x},
		`no input "z"`:                               {"x": x, "y": y, "z": y},
		`no input "Y": its inputs are ["x" "y"]`:     {"x": x, "Y": y},
		`no input "X": its inputs are ["x" "y"]`:     {"x": x, "y": y, "X": x},
		`input "x": type float64, the model wants`:   feed(dense(tensor.Float64, make([]float64, 32), 4, 8), y),
		`input "x": shape (8, 4), the model wants (`: feed(dense(tensor.Float32, make([]float64, 32), 8, 4), y),
		`input "y": column-major`:                    feed(x, tensor.New(tensor.Of(tensor.Float32), tensor.WithShape(4, 3), tensor.AsFortran(nil))),
	} {
		if _, err := r.Step(ctx, f); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("got %v, want %q", err, want)
		}
	}
	if _, err := r.Step(ctx, rows(tensor.Float32, 0, 0, 4, 8, 3)); err != nil {
		t.Errorf("a good feed after bad ones: %v", err)
	}
	if _, err := r.Evaluate(ctx, Feed{}); err == nil {
		t.Error("evaluated nothing")
	}
}

func TestStepAfterFailureReturnsTheCause(t *testing.T) {
	j := soloJob(io.Discard)
	r, err := j.Parallelize(context.Background(), mlp(tensor.Float32, Mean, 8, 3), SGD(0.1), GlobalBatch(4))
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancelCause(context.Background())
	cancel(errStopped)
	for range 2 {
		if _, err := r.Step(ctx, rows(tensor.Float32, 0, 0, 4, 8, 3)); !errors.Is(err, errStopped) {
			t.Errorf("got %v", err)
		}
	}
	if _, err := r.Values(context.Background()); !errors.Is(err, errStopped) {
		t.Errorf("values: %v", err)
	}
}

func TestLogLevels(t *testing.T) {
	for text, want := range map[string]slog.Level{
		"": slog.LevelInfo, "DEBUG": slog.LevelDebug, "warning": slog.LevelWarn, "verbose": cluster.VerboseLevel, "15": cluster.VerboseLevel, "error": slog.LevelError,
		"10": slog.LevelDebug, "20": slog.LevelInfo, "30": slog.LevelWarn, "40": slog.LevelError,
	} {
		if got, err := parseLevel(text); err != nil || got != want {
			t.Errorf("%q: got %v, %v", text, got, err)
		}
	}
	if _, err := parseLevel("loud"); err == nil {
		t.Error("accepted loud")
	}
	var log bytes.Buffer
	p := &printer{out: &log, level: slog.LevelWarn}
	p.Logf(slog.LevelInfo, "no")
	p.Logf(slog.LevelWarn, "disk %d", 3)
	if log.String() != "plx: warn: disk 3\n" {
		t.Errorf("got %q", log.String())
	}
}
