package trainer

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"gorgonia.org/tensor"

	"github.com/plx-run/plx/trainer/config"
)

// The chief's summaries must contain every step, with loss, rate and norm of
// the reference loop.
func TestSummariesHoldEveryStep(t *testing.T) {
	const steps, batch = 5, 12
	dir := filepath.Join(t.TempDir(), "made", "by the trainer")
	tj := newTestJob(t, 2, 1, Arch("ps"), flags(func(c *config.Config) { c.SummaryDir, c.SummaryEverySteps = dir, 1 }))
	rate := func(step int) float64 { return 0.05 * float64(1+step) }
	errs := tj.all(func(j *Job) error {
		r, err := j.Parallelize(t.Context(), regression{}.build, SGD(0).WithSchedule(rate), GlobalBatch(batch))
		for step := 0; step < steps && err == nil; step++ {
			from, to := r.Rows()
			_, err = r.Step(t.Context(), regression{}.feed(step, from, to))
		}
		return err
	})
	if err := errors.Join(errs...); err != nil {
		t.Fatal(err)
	}
	events, err := filepath.Glob(filepath.Join(dir, "events.out.tfevents.*"))
	if err != nil || len(events) != 1 {
		t.Errorf("event files %v, %v", events, err)
	}
	if text, err := os.ReadFile(events[0]); err != nil || bytes.Count(text, []byte("variables/w")) != steps || !bytes.Contains(text, []byte("_output_shapes")) {
		t.Errorf("%v: the event file lacks histograms or the graph", err)
	}
	var twin regression
	lines := summaryLines(t, dir)
	if len(lines) != steps {
		t.Fatalf("%d lines, want %d", len(lines), steps)
	}
	for step, v := range lines {
		done := twin.look(twin.rows(step, 0, batch))
		twin.apply(done, rate(step), 0)
		got := []float64{v["loss"], v["learning_rate"], v["gradient_norm"], v["metrics/mean guess"]}
		err := allNear("loss, rate, norm, metric", got, []float64{done.loss, rate(step), done.norm, done.mean})
		if err != nil || v["step"] != float64(step) || v["time"] <= 0 {
			t.Errorf("step %d: %v: %v", step, v, err)
		}
		if v["samples_per_second"] <= 0 || v["compute_ms"] <= 0 || v["communication_ms"] <= 0 || v["wait_ms"] < 0 {
			t.Errorf("step %d: %v", step, v)
		}
	}
}

// summaryLines reads the JSON lines file in a folder, which must contain only
// one.
func summaryLines(t *testing.T, dir string) (lines []map[string]float64) {
	t.Helper()
	paths, err := filepath.Glob(filepath.Join(dir, "*.jsonl"))
	if err != nil || len(paths) != 1 {
		t.Fatalf("%v, %v: want one file, the chief's", paths, err)
	}
	f, err := os.Open(paths[0])
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	for in := json.NewDecoder(f); in.More(); {
		var members map[string]any
		if err := in.Decode(&members); err != nil {
			t.Fatal(err)
		}
		l := map[string]float64{}
		for name, v := range members {
			switch v := v.(type) {
			case float64:
				l[name] = v
			case map[string]any:
				for metric, x := range v {
					l[name+"/"+metric] = x.(float64)
				}
			}
		}
		lines = append(lines, l)
	}
	return lines
}

// traced is one event of a timeline file. Times are in microseconds.
type traced struct {
	Name  string
	Phase string  `json:"ph"`
	At    float64 `json:"ts"`
	Took  float64 `json:"dur"`
	Args  map[string]any
}

// readTimeline reads the timeline file of the worker with the given rank.
func readTimeline(t *testing.T, dir string, rank int) []traced {
	t.Helper()
	b, err := os.ReadFile(filepath.Join(dir, fmt.Sprintf("timeline-worker-%d.json", rank)))
	var file struct {
		TraceEvents []traced `json:"traceEvents"`
	}
	if err := errors.Join(err, json.Unmarshal(b, &file)); err != nil {
		t.Fatalf("worker:%d: %v", rank, err)
	}
	return file.TraceEvents
}

// Every worker's timeline must contain exactly the steps of --profile-steps.
// It must show that gradients are sent while others are still being computed.
func TestTimelineShowsOverlapOfSendingAndComputing(t *testing.T) {
	const first, end, steps = 2, 42, 44 // many steps, because on a busy machine only a few overlap
	dir := t.TempDir()
	tj := newTestJob(t, 2, 0, Arch("allreduce"), flags(func(c *config.Config) {
		c.ProfileSteps, c.ProfileDir, c.BucketBytes = fmt.Sprintf("%d:%d", first, end), dir, 1<<10
	}))
	build := mlp(tensor.Float32, Mean, 256, 320, 320, 320, 320, 320, 320, 3)
	errs := tj.all(func(j *Job) error {
		r, err := j.Parallelize(t.Context(), build, SGD(0.01), GlobalBatch(64))
		for step := 0; step < steps && err == nil; step++ {
			from, to := r.Rows()
			_, err = r.Step(t.Context(), rows(tensor.Float32, step, from, to, 256, 3))
		}
		return err
	})
	if err := errors.Join(errs...); err != nil {
		t.Fatal(err)
	}
	overlaps := 0
	for rank := range 2 {
		events := readTimeline(t, dir, rank)
		var seen []string
		for _, e := range events {
			if strings.HasPrefix(e.Name, "step ") {
				seen = append(seen, e.Name)
			}
			if step, ok := e.Args["step"].(float64); ok && e.Phase == "X" && (step < first || step >= end) {
				t.Errorf("worker:%d: %+v is not of a step that was asked for", rank, e)
			}
		}
		var want []string
		for step := first; step < end; step++ {
			want = append(want, fmt.Sprint("step ", step))
		}
		if !slices.Equal(seen, want) {
			t.Errorf("worker:%d: steps %v", rank, seen)
		}
		overlaps += countOverlaps(t, events)
	}
	if overlaps == 0 {
		t.Error("in no step a bucket left before the last gradient was there")
	}
}

// Only the workers in ProfileWorkers must write a timeline, with only the
// steps in ProfileSteps.
func TestTimelineOfChosenWorkersAndSteps(t *testing.T) {
	dir := t.TempDir()
	tj := newTestJob(t, 2, 0, flags(func(c *config.Config) { c.ProfileSteps, c.ProfileWorkers, c.ProfileDir = "1,4:6", "1", dir }))
	errs := tj.all(func(j *Job) error {
		r, err := j.Parallelize(t.Context(), regression{}.build, SGD(0.1), GlobalBatch(12))
		for step := 0; step < 8 && err == nil; step++ {
			from, to := r.Rows()
			_, err = r.Step(t.Context(), regression{}.feed(step, from, to))
		}
		return err
	})
	if err := errors.Join(errs...); err != nil {
		t.Fatal(err)
	}
	if files, err := filepath.Glob(filepath.Join(dir, "*")); err != nil || len(files) != 1 || filepath.Base(files[0]) != "timeline-worker-1.json" {
		t.Errorf("files %v, %v: want the timeline of worker 1 alone", files, err)
	}
	var steps []string
	for _, e := range readTimeline(t, dir, 1) {
		if strings.HasPrefix(e.Name, "step ") {
			steps = append(steps, e.Name)
		}
	}
	if fmt.Sprint(steps) != "[step 1 step 4 step 5]" {
		t.Errorf("steps %v, want 1, 4 and 5", steps)
	}
}

// countOverlaps returns the number of steps in which a bucket of gradients was
// sent before the last gradient was complete.
func countOverlaps(t *testing.T, events []traced) (overlaps int) {
	for _, step := range events {
		if !strings.HasPrefix(step.Name, "step ") {
			continue
		}
		within := func(e traced) bool { return e.At >= step.At && e.At <= step.At+step.Took }
		last, gradients, sent := 0.0, 0, []float64{}
		for _, e := range events {
			bucket, bucketed := e.Args["bucket"].(float64)
			switch {
			case within(e) && e.Phase == "i" && strings.HasPrefix(e.Name, "gradient of "):
				last, gradients = max(last, e.At), gradients+1
			case within(e) && e.Name == "send" && bucketed && bucket >= 0:
				sent = append(sent, e.At)
			}
		}
		if gradients != 7 {
			t.Errorf("%s: %d gradients, want 7", step.Name, gradients)
		}
		for _, at := range sent {
			if at < last {
				overlaps++
				break
			}
		}
	}
	return overlaps
}

func TestExportedGraph(t *testing.T) {
	path := filepath.Join(t.TempDir(), "graphs", "model")
	tj := newTestJob(t, 2, 0, flags(func(c *config.Config) { c.ExportGraph = path }))
	errs := tj.all(func(j *Job) error {
		_, err := j.Parallelize(t.Context(), smallCNN(1), SGD(0.1), GlobalBatch(4))
		return err
	})
	if err := errors.Join(errs...); err != nil {
		t.Fatal(err)
	}
	dot, err := os.ReadFile(path + ".dot")
	if err != nil || !bytes.HasPrefix(dot, []byte("digraph")) {
		t.Errorf("%.40s, %v", dot, err)
	}
	text, err := os.ReadFile(path + ".json")
	if err != nil {
		t.Fatal(err)
	}
	var described struct {
		Vertices []struct{ Name, Kind string }
		Edges    []struct{ From, To int }
	}
	if err := json.Unmarshal(text, &described); err != nil || len(described.Edges) == 0 {
		t.Fatalf("%d edges, %v", len(described.Edges), err)
	}
	kinds := map[string]string{}
	for _, v := range described.Vertices {
		kinds[v.Name] = v.Kind
	}
	for name, kind := range map[string]string{"x": "input", "y": "input", "filters": "variable", "norm.mean": "variable", "last.w": "variable"} {
		if kinds[name] != kind {
			t.Errorf("%q is %q, want %q", name, kinds[name], kind)
		}
	}
	if !bytes.Contains(text, []byte(`"loss"`)) {
		t.Error("no vertex is the loss")
	}
}

// If an output folder or file cannot be written, Parallelize must fail with an
// error that names the flag.
func TestUnwritableOutputsAreNamed(t *testing.T) {
	file := filepath.Join(t.TempDir(), "file")
	if err := os.WriteFile(file, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	for flag, set := range map[string]func(c *config.Config){
		"--summary-dir":  func(c *config.Config) { c.SummaryDir = filepath.Join(file, "x") },
		"--export-graph": func(c *config.Config) { c.ExportGraph = filepath.Join(file, "x") },
		"--profile-dir":  func(c *config.Config) { c.ProfileSteps, c.ProfileDir = "1:2", filepath.Join(file, "x") },
	} {
		j := newTestJob(t, 1, 0, flags(set)).jobs[0]
		if _, err := j.Parallelize(t.Context(), regression{}.build, SGD(0.1), GlobalBatch(4)); err == nil || !strings.Contains(err.Error(), flag) {
			t.Errorf("got %v, want %q", err, flag)
		}
	}
}

// The chief must write its evaluations to a separate folder, with the same
// loss that the program gets.
func TestEvaluationsHaveTheirOwnSummaries(t *testing.T) {
	dir := t.TempDir()
	j := soloJob(io.Discard, flags(func(c *config.Config) { c.SummaryDir = dir }))
	r, err := j.Parallelize(t.Context(), regression{}.build, SGD(0.1), GlobalBatch(12))
	if err != nil {
		t.Fatal(err)
	}
	var want []float64
	for step := range 3 {
		if _, err := r.Step(t.Context(), regression{}.feed(step, 0, 12)); err != nil {
			t.Fatal(err)
		}
		result, err := r.Evaluate(t.Context(), regression{}.feed(70, 0, 5))
		if err != nil {
			t.Fatal(err)
		}
		want = append(want, result.Loss)
	}
	if err := r.close(nil); err != nil {
		t.Fatal(err)
	}
	lines := summaryLines(t, filepath.Join(dir, "eval"))
	if len(lines) != 3 {
		t.Fatalf("%d evaluations", len(lines))
	}
	for i, l := range lines {
		if l["step"] != float64(i+1) || !near(l["loss"], want[i]) || i > 0 && want[i] == want[i-1] {
			t.Errorf("after %d steps: %v, want loss %v", i+1, l, want[i])
		}
	}
}
