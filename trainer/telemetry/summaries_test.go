package telemetry

import (
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/plx-run/plx/trainer/cluster"
	"github.com/plx-run/plx/trainer/config"
	"github.com/plx-run/plx/trainer/graph"
	"github.com/plx-run/plx/trainer/summary"
)

// summarised returns the Recorder of a worker that writes summaries to a
// temporary folder.
func summarised(t *testing.T, rank int) (r *Recorder, dir string, log *strings.Builder) {
	t.Helper()
	c := config.Default()
	c.SummaryDir, log = t.TempDir(), new(strings.Builder)
	r, err := Open(&c, cluster.Task{Role: cluster.Worker, Index: rank}, func(_ slog.Level, format string, args ...any) { fmt.Fprintf(log, format, args...) })
	if err != nil {
		t.Fatal(err)
	}
	return r, c.SummaryDir, log
}

// written returns step and loss of each line of the JSON lines file in a
// folder, which must contain only one.
func written(t *testing.T, dir string) (lines []string) {
	t.Helper()
	paths, err := filepath.Glob(filepath.Join(dir, "*.jsonl"))
	if err != nil || len(paths) != 1 {
		t.Fatalf("%v, %v", paths, err)
	}
	text, err := os.ReadFile(paths[0])
	if err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(string(text)) {
		var l struct {
			Step    int
			Loss    float64
			Metrics map[string]float64
		}
		if err := json.Unmarshal([]byte(line), &l); err != nil {
			t.Fatal(err)
		}
		lines = append(lines, fmt.Sprint(l.Step, ":", l.Loss, l.Metrics))
	}
	return lines
}

// By default the Recorder must write a summary of every hundredth step, and of
// the first and last step of the process. All but the last have histograms.
func TestSummaryEveryHundredSteps(t *testing.T) {
	for first, want := range map[int]string{0: "[0:0 map[] 100:100 map[] 200:200 map[] 249:249 map[]]", 150: "[150:150 map[] 200:200 map[] 249:249 map[]]"} {
		r, dir, _ := summarised(t, 0)
		asked := 0
		for step := first; step < 250; step++ {
			err := r.After(summary.Scalars{Step: uint64(step), Loss: float64(step)}, 1, Timing{End: time.Now()},
				func() ([]summary.Histogram, error) { asked++; return nil, nil })
			if err != nil {
				t.Fatal(err)
			}
		}
		if err := r.Close(250); err != nil {
			t.Fatal(err)
		}
		got := written(t, dir)
		if fmt.Sprint(got) != want || asked != len(got)-1 {
			t.Errorf("from %d: summaries %v, want %v; histograms asked for %d times", first, got, want, asked)
		}
	}
}

// If the values for histograms cannot be read, the step must fail.
func TestUnreadableHistogramFailsTheStep(t *testing.T) {
	r, _, _ := summarised(t, 0)
	gone := errors.New("gone")
	if err := r.After(summary.Scalars{}, 1, Timing{}, func() ([]summary.Histogram, error) { return nil, gone }); err != gone {
		t.Errorf("got %v", err)
	}
}

// The batches of an evaluation between two steps must become one summary in
// the subfolder "eval". It holds the mean over all rows, or the sum if the
// loss is a sum.
func TestEvaluationBatchesBecomeOneSummary(t *testing.T) {
	for _, c := range []struct {
		sum  bool
		want string
	}{
		{false, "[10:2 map[accuracy:0.625] 20:8 map[accuracy:1]]"}, {true, "[10:4 map[accuracy:0.625] 20:8 map[accuracy:1]]"},
	} {
		r, dir, _ := summarised(t, 0)
		none := func() ([]summary.Histogram, error) { return nil, nil }
		if err := r.After(summary.Scalars{Step: 9}, 1, Timing{}, none); err != nil {
			t.Fatal(err)
		}
		r.Evaluated(10, 30, 1, c.sum, map[string]float64{"accuracy": 0.5})
		r.Evaluated(10, 10, 3*map[bool]float64{false: 5. / 3, true: 1}[c.sum], c.sum, map[string]float64{"accuracy": 1})
		if err := r.After(summary.Scalars{Step: 10}, 1, Timing{}, none); err != nil {
			t.Fatal(err)
		}
		r.Evaluated(20, 10, 8, c.sum, map[string]float64{"accuracy": 1})
		if err := r.Close(20); err != nil {
			t.Fatal(err)
		}
		if got := fmt.Sprint(written(t, filepath.Join(dir, "eval"))); got != c.want {
			t.Errorf("sum %t: %s, want %s", c.sum, got, c.want)
		}
	}
	r, dir, _ := summarised(t, 1)
	r.Evaluated(1, 1, 1, false, nil)
	if err := r.Close(1); err != nil {
		t.Error(err)
	}
	if left, err := os.ReadDir(dir); err != nil || len(left) > 0 {
		t.Errorf("worker:1 has written %v, %v", left, err)
	}
}

// Nodes must have distinct names without characters that have a special
// meaning in TensorBoard.
func TestNodesHaveDistinctNames(t *testing.T) {
	g := graph.Graph{
		Vertices: []graph.Vertex{
			{ID: 0, Name: "x", Kind: graph.Input, Shape: []int{2}, Dtype: "float32"},
			{ID: 1, Name: "x", Kind: graph.Variable}, {ID: 2, Op: "A × B^2"}, {ID: 3, Op: "A × B^2", Name: "loss:0"}, {ID: 4, Op: "A × B^2"},
		},
		Edges: []graph.Edge{{From: 0, To: 2}, {From: 1, To: 2, Operand: 1}, {From: 2, To: 3}},
	}
	var got string
	for _, n := range nodes(g) {
		got += fmt.Sprintf("%s|%s|%s|%d|%s\n", n.Name, n.Op, strings.Join(n.Inputs, ","), n.Shape, n.Dtype)
	}
	want := "x|input||[2]|float32\nx_1|variable||[]|\nA_×_B_2|A × B^2|x,x_1|[]|\nloss_0|A × B^2|A_×_B_2|[]|\nA_×_B_2_4|A × B^2||[]|\n"
	if got != want {
		t.Errorf("got  %s\nwant %s", got, want)
	}
}

// If a graph is too large for TensorBoard, the Recorder must log a warning
// instead of writing it.
func TestLargeGraphIsNotWritten(t *testing.T) {
	r, _, log := summarised(t, 0)
	err := r.Graph(graph.Graph{Vertices: make([]graph.Vertex, summary.MostNodes+1)})
	if err != nil || !strings.Contains(log.String(), "the summaries have no graph: the model's has 20001 vertices") {
		t.Errorf("%v, %q", err, log)
	}
}
