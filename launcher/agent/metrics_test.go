//go:build linux

package agent

import (
	"encoding/json"
	"testing"
	"time"

	"github.com/plx-run/plx/internal/patience"
	"github.com/plx-run/plx/launcher/metrics"
	"github.com/plx-run/plx/launcher/protocol"
)

// reports asks until worker:0 has reported as many values as want has, and compares them.
func (l *line) reports(want string) {
	l.t.Helper()
	var wanted map[string]metrics.Number
	if err := json.Unmarshal([]byte(want), &wanted); err != nil {
		l.t.Fatal(err)
	}
	for limit := time.Now().Add(patience.Limit); ; time.Sleep(time.Millisecond) {
		l.send(protocol.Message{Look: &protocol.Look{ID: 1, Metrics: true}})
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

// Values come from both streams, from lines without an end and by the user's patterns. Who does
// not ask for them gets none.
func TestMetricsOfATask(t *testing.T) {
	h := newHost(t, 1, "say", "step 3 | loss nan", "the cost is 7", "nothing", "\r 45%|####5     | 45/100 [00:10<00:12,  4.50it/s]")
	h.spec.Metrics = []string{"mine=cost is ([0-9.]+)"}
	l, _ := h.launch()
	l.reports(`{"loss":"NaN","mine":7,"step":45,"steps":100,"steps_per_second":4.5}`)
	l.send(protocol.Message{Look: &protocol.Look{ID: 2, Tell: true}})
	seen := l.wait("Seen", func(m protocol.Message) bool { return m.Seen != nil && m.Seen.ID == 2 }).Seen
	if a := seen.Tasks[worker(0)]; a == nil || a.Metrics != nil {
		t.Errorf("seen %+v, and nobody has asked for metrics", a)
	}
	l.end(h, time.Second)
}
