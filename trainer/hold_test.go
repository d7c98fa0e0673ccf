package trainer

import (
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/plx-run/plx/trainer/checkpoint/saver"
	"github.com/plx-run/plx/trainer/cluster"
	"github.com/plx-run/plx/trainer/config"
)

// A request with Hold must pause the job after the requested checkpoint, until
// Resume is called. The pause must not change the weights.
func TestPausedJobContinuesAfterResume(t *testing.T) {
	x := trial{build: words, feed: sentences, opt: Adam(0.01), options: []Option{GlobalBatch(12)}, steps: 30}
	want := x.alone(t, VirtualWorkers(6))
	tj := newTestJobOn(t, hostNames(3), 1, VirtualWorkers(6), everySteps(t.TempDir(), 0), Arch("ps"))
	chief := tj.jobs[0]
	told := make(chan int, 1)
	stopped := make(chan error, 1)
	go func() { // if the job ends before it was paused, the test fails below
		for chief.progress.steps.Load() < 3 {
			select {
			case <-t.Context().Done():
				return
			case <-time.After(time.Millisecond):
			}
		}
		r := chief.session.Load()
		r.saving.saver.RequestSave(saver.Request{Hold: true, Leaving: []cluster.Task{{Role: cluster.Worker, Index: 2}},
			Tell: func(step int, _ time.Duration, err error) {
				if err != nil {
					stopped <- err
					return
				}
				told <- step
			}})
		select {
		case step := <-told:
			before := chief.progress.steps.Load()
			for end := time.Now().Add(100 * time.Millisecond); time.Now().Before(end); time.Sleep(time.Millisecond) { // a step takes one or two milliseconds
				if after := chief.progress.steps.Load(); after != before || int(after) != step {
					stopped <- errors.New("it goes on while it is held")
					break
				}
			}
			close(stopped)
			r.saving.saver.Resume(0)
		case <-t.Context().Done():
		}
	}()
	got, err := x.until(30, tj)
	if err != nil {
		t.Fatalf("%v\n%s", err, tj.logs[0])
	}
	select {
	case err := <-stopped:
		if err != nil {
			t.Error(err)
		}
	default:
		t.Error("it was never held")
	}
	if got.digest != want.digest {
		t.Errorf("%s, want %s", got.digest, want.digest)
	}
}

func TestJobRefusesImpossibleNumbersOfWorkers(t *testing.T) {
	for _, x := range []struct {
		conf    config.Config
		leaves  int
		first   int
		workers int
		want    string
	}{
		{config.Config{VirtualWorkers: 6, Replicas: 1, Accumulate: 1}, 6, 2, 3, ""},
		{config.Config{VirtualWorkers: 6, Replicas: 1, Accumulate: 1}, 6, 2, 6, ""},
		{config.Config{VirtualWorkers: 6, Replicas: 1, Accumulate: 1}, 6, 2, 7, "7 workers"},
		{config.Config{Replicas: 1, Accumulate: 1}, 4, 4, 1, ""},
		{config.Config{Replicas: 1, Accumulate: 1}, 4, 4, 5, "launch it with --virtual-workers 5"},
		{config.Config{Replicas: 1, Accumulate: 1, Sync: "group:3"}, 4, 4, 3, ""},
		{config.Config{Replicas: 1, Accumulate: 1, Sync: "group:3"}, 4, 4, 2, "group:3: want 1 to 2 groups"},
		{config.Config{Replicas: 1, Accumulate: 1, Sync: "backup:1"}, 4, 4, 1, "backup:1: want 0 to 0"},
	} {
		j := &Job{config: config.Effective{Config: x.conf}, virtual: x.leaves, contract: cluster.Contract{FirstWorldSize: x.first, Cluster: cluster.Spec{PS: []string{"h1:1"}}}}
		err := j.tolerates(x.workers)
		if (err == nil) != (x.want == "") || err != nil && !strings.Contains(err.Error(), x.want) {
			t.Errorf("%d workers: %v, want %q", x.workers, err, x.want)
		}
	}
}
