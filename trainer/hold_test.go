package trainer

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/plx-run/plx/trainer/cluster"
)

// A job that is held stands still behind the checkpoint that was asked for,
// until it is let go on; nothing of it is to be seen in the weights.
func TestAHeldJobGoesOn(t *testing.T) {
	x := trial{build: words, feed: sentences, opt: Adam(0.01), options: []Option{GlobalBatch(12)}, steps: 30}
	want := x.alone(t, VirtualWorkers(6))
	tj := newTestJobOn(t, hostNames(3), 1, VirtualWorkers(6), saving(t.TempDir(), 0), Arch("ps"))
	chief := tj.jobs[0]
	told := make(chan int, 1)
	stopped := make(chan error, 1)
	go func() { // a job that ends before it was held fails the test below
		for chief.steps.Load() < 3 {
			select {
			case <-t.Context().Done():
				return
			case <-time.After(time.Millisecond):
			}
		}
		r := chief.replica.Load()
		r.saver.ask(request{hold: true, leaving: []cluster.Task{{Role: cluster.Worker, Index: 2}},
			tell: func(step int, _ time.Duration, err error) {
				if err != nil {
					stopped <- err
					return
				}
				told <- step
			}})
		select {
		case step := <-told:
			before := chief.steps.Load()
			time.Sleep(100 * time.Millisecond) // steps take one or two
			if after := chief.steps.Load(); after != before || int(after) != step {
				stopped <- errors.New("it goes on while it is held")
			}
			close(stopped)
			r.saver.resume(0)
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

// A chief that is told to stop while it holds the job ends.
func TestAHeldJobEnds(t *testing.T) {
	s := &saver{r: &Replica{job: &Job{}}}
	s.hold([]request{{}, {hold: true, number: 3}})
	ctx, cancel := context.WithCancelCause(t.Context())
	cancel(errAgentSays)
	s.resting.step = 1
	if err := s.rest(ctx); !errors.Is(err, errStopped) {
		t.Errorf("got %v", err)
	}
	s.resume(2) // of a request before
	if s.resting == nil {
		t.Fatal("the word of another request ended it")
	}
	s.resume(3)
	if err := s.rest(t.Context()); err != nil {
		t.Errorf("resumed: %v", err)
	}
}

func TestHowManyWorkersAJobBears(t *testing.T) {
	for _, x := range []struct {
		conf    config
		leaves  int
		first   int
		workers int
		want    string
	}{
		{config{virtual: 6, replicas: 1, accumulate: 1}, 6, 2, 3, ""},
		{config{virtual: 6, replicas: 1, accumulate: 1}, 6, 2, 6, ""},
		{config{virtual: 6, replicas: 1, accumulate: 1}, 6, 2, 7, "7 workers"},
		{config{replicas: 1, accumulate: 1}, 4, 4, 1, ""},
		{config{replicas: 1, accumulate: 1}, 4, 4, 5, "launch it with --virtual-workers 5"},
		{config{replicas: 1, accumulate: 1, sync: "group:3"}, 4, 4, 3, ""},
		{config{replicas: 1, accumulate: 1, sync: "group:3"}, 4, 4, 2, "group:3: want 1 to 2 groups"},
		{config{replicas: 1, accumulate: 1, sync: "backup:1"}, 4, 4, 1, "backup:1: want 0 to 0"},
	} {
		j := &Job{config: x.conf, leaves: x.leaves, contract: cluster.Contract{FirstWorldSize: x.first, Cluster: cluster.Spec{PS: []string{"h1:1"}}}}
		err := j.bears(x.workers)
		if (err == nil) != (x.want == "") || err != nil && !strings.Contains(err.Error(), x.want) {
			t.Errorf("%d workers: %v, want %q", x.workers, err, x.want)
		}
	}
}
