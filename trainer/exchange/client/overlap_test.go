package client

import (
	"bytes"
	"context"
	"encoding/json"
	"testing"
	"time"

	"github.com/plx-run/plx/trainer/layout"
	"github.com/plx-run/plx/trainer/policy"
	"github.com/plx-run/plx/trainer/timeline"
)

// In every architecture, the first bucket arrives at its shard holder before
// the last gradient is computed. The recorded trace shows that.
func TestFirstBucketIsSentBeforeLastGradient(t *testing.T) {
	for _, a := range []policy.Architecture{policy.Servers, policy.AllReduce} {
		d := example(2, 2)
		d.Variables = []layout.Variable{
			{Name: "first", Dtype: layout.Float32, Shape: []int{64, 1024}}, {Name: "last", Dtype: layout.Float32, Shape: []int{64, 1024}},
		}
		d.BucketBytes = 1 << 16
		j := newJob(t, d, a, 1)
		recorder := timeline.New(1000)
		recorder.Record(true)
		j.traces = []*timeline.Recorder{recorder}
		members := j.connect(t)
		other := make(chan error, 1)
		go func() {
			_, err := members[1].take(context.Background(), 0, 0.1, everyLeaf)
			other <- err
		}()
		m := members[0]
		sent := func() (n uint64) {
			for _, l := range m.holders.connected() {
				bytes, _ := l.session.Traffic()
				n += bytes
			}
			return n
		}
		before := sent()
		if err := m.Begin(0.1); err != nil {
			t.Fatal(err)
		}
		gradient(m.holders.d, m.Gradient(0, 1), 1, 0, 0)
		m.Contribute(0, 1) // in the order of backpropagation: the last layer first
		least := uint64(4 * 64 * 1024)
		if a == policy.AllReduce {
			least /= 2 // this worker itself holds half of the bucket
		}
		eventually(t, "the first bucket left", func() bool { return sent()-before >= least })
		last := time.Now()
		gradient(m.holders.d, m.Gradient(0, 0), 0, 0, 0)
		m.Contribute(0, 0)
		if _, err := m.Finish(context.Background(), [][]float64{{1}}); err != nil {
			t.Fatal(err)
		}
		if err := within(t, other); err != nil {
			t.Fatal(err)
		}
		recorder.Instant("test", "last gradient", last)
		leave(t, j, members)
		checkTrace(t, recorder)
	}
}

func checkTrace(t *testing.T, recorder *timeline.Recorder) {
	t.Helper()
	var b bytes.Buffer
	if err := recorder.Write(&b, timeline.Process{Name: "worker:0"}); err != nil {
		t.Fatal(err)
	}
	var trace struct {
		TraceEvents []struct {
			Name, Ph string
			Ts, Dur  float64
			Args     map[string]any
		}
	}
	if err := json.Unmarshal(b.Bytes(), &trace); err != nil {
		t.Fatal(err)
	}
	first, last := -1.0, -1.0
	names := map[string]bool{}
	for _, e := range trace.TraceEvents {
		names[e.Name] = true
		switch {
		case e.Name == "last gradient":
			last = e.Ts
		case e.Name == "send" && e.Args["bucket"] == 0.0 && first < 0:
			first = e.Ts
			if e.Args["bytes"].(float64) < 1<<16 {
				t.Errorf("the first bucket has %v bytes", e.Args["bytes"])
			}
		}
	}
	if first < 0 || last < 0 || first >= last || !names["wait"] || !names["first"] {
		t.Errorf("first bucket left at %v, last gradient came at %v, spans %v", first, last, names)
	}
}
