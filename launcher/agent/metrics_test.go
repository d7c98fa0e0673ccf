//go:build linux

package agent

import (
	"encoding/hex"
	"encoding/json"
	"errors"
	"math"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/plx-run/plx/internal/test/patience"
	"github.com/plx-run/plx/launcher/metrics"
	"github.com/plx-run/plx/launcher/protocol"
	"github.com/plx-run/plx/trainer/summary"
)

// reports polls until worker:0 has reported as many values as want contains,
// and compares them.
func (l *line) reports(want string) {
	l.t.Helper()
	var wanted map[string]metrics.Number
	if err := json.Unmarshal([]byte(want), &wanted); err != nil {
		l.t.Fatal(err)
	}
	for limit := time.Now().Add(patience.Limit); ; time.Sleep(time.Millisecond) {
		l.send(protocol.Message{Look: &protocol.ActivityRequest{ID: 1, Metrics: true}})
		seen := l.wait("Seen", func(m protocol.Message) bool { return m.Seen != nil }).Seen
		var got map[string]metrics.Number
		if a := seen.Tasks[worker(0)]; a != nil {
			got = a.Metrics
		}
		if len(got) < len(wanted) && time.Now().Before(limit) {
			continue
		}
		if text, err := json.Marshal(got); err != nil || string(text) != want {
			l.t.Errorf("metrics %s, %v, want %s", text, err, want)
		}
		return
	}
}

// Metrics come from both output streams, from incomplete lines, and by the
// user's patterns. A Look request without Metrics gets none.
func TestMetricsOfATask(t *testing.T) {
	h := newHost(t, 1, "say", "step 3 | loss nan", "the cost is 7", "nothing", "\r 45%|####5     | 45/100 [00:10<00:12,  4.50it/s]")
	h.spec.Metrics = []string{"mine=cost is ([0-9.]+)"}
	l, _ := h.launch()
	l.reports(`{"loss":"NaN","mine":7,"step":45,"steps":100,"steps_per_second":4.5}`)
	l.send(protocol.Message{Look: &protocol.ActivityRequest{ID: 2, Tell: true}})
	seen := l.wait("Seen", func(m protocol.Message) bool { return m.Seen != nil && m.Seen.ID == 2 }).Seen
	if a := seen.Tasks[worker(0)]; a == nil || a.Metrics != nil {
		t.Errorf("seen %+v, and nobody has asked for metrics", a)
	}
	l.end(h, time.Second)
}

// The metrics of all generations of a task are stored with the job. The newest
// values are those of the last generation. A damaged file is replaced.
func TestMetricsAreKeptWithTheJob(t *testing.T) {
	h := newHost(t, 1, "say", "step 3 | loss 0.5", "step 4 | loss 0.25, acc 0.5", "")
	l, _ := h.launch()
	l.reports(`{"acc":0.5,"loss":0.25,"step":4}`)
	points := func() int {
		t.Helper()
		history, err := h.folder().ReadMetrics(worker(0))
		if err != nil {
			t.Fatal(err)
		}
		return len(history.Points("loss"))
	}
	if p := l.ask(1, h.spec.Tasks); p.Error != "" {
		t.Fatalf("prepare: %s", p.Error)
	}
	if n := points(); n != 2 {
		t.Errorf("%d points of the loss after a generation, want 2", n)
	}
	l.run(1)
	l.reports(`{"acc":0.5,"loss":0.25,"step":4}`)
	if err := os.WriteFile(filepath.Join(string(h.folder()), "metrics", "worker-0"), []byte("damaged"), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := h.folder().ReadMetrics(worker(0)); err == nil || !strings.Contains(err.Error(), "read the metrics of worker:0: history of metrics: ") {
		t.Errorf("a damaged file: %v", err)
	}
	l.end(h, time.Second)
	if n := points(); n != 4 {
		t.Errorf("%d points of the loss after two generations, want 4", n)
	}
}

// The agent reads event files that any process of the task has open. In a
// damaged file it reads the records before the damage.
func TestMetricsOfEventFiles(t *testing.T) {
	dir := t.TempDir()
	w, err := summary.Open(dir)
	if err != nil {
		t.Fatal(err)
	}
	report := summary.Scalars{Step: 7, Loss: 0.5, GradientNorm: math.NaN(), Metrics: map[string]float64{"Top 1": 0.25}}
	if err := errors.Join(w.Step(report), w.Close()); err != nil {
		t.Fatal(err)
	}
	found, err := filepath.Glob(filepath.Join(dir, "events.*"))
	if err != nil || len(found) != 1 {
		t.Fatalf("event files %v, %v", found, err)
	}
	content, err := os.ReadFile(found[0])
	if err != nil {
		t.Fatal(err)
	}
	h, l, _ := ready(t, "events", hex.EncodeToString(append(content, "no record, but damage"...)), "host")
	l.reports(`{"communication_ms":0,"compute_ms":0,"learning_rate":0,"loss":0.5,"metrics/top_1":0.25,"samples_per_second":0,"step":7,"wait_ms":0}`)
	l.end(h, time.Second)
	history, err := h.folder().ReadMetrics(worker(0))
	if err != nil || len(history.Points("loss")) != 1 {
		t.Errorf("points of the loss %v, %v", history.Points("loss"), err)
	}
	if text, err := os.ReadFile(h.folder().Log()); err != nil || strings.Count(string(text), "event file: record at byte") != 1 {
		t.Errorf("the agent's log does not name the damage once: %v: %s", err, text)
	}
}
