package client

import (
	"context"
	"errors"
	"strings"
	"testing"

	"github.com/plx-run/plx/trainer/policy"
)

func TestDifferentLearningRatesAreRefused(t *testing.T) {
	for _, a := range []policy.Architecture{policy.Servers, policy.AllReduce} {
		j := newJob(t, example(2, 2), a, 1)
		members := j.connect(t)
		errs := make(chan error, 2)
		for rank, m := range members {
			go func() {
				_, err := m.take(context.Background(), 0, 0.1+float64(rank), everyLeaf)
				errs <- err
			}()
		}
		for range members {
			if err := within(t, errs); err == nil || !strings.Contains(err.Error(), "learning rate") {
				t.Errorf("%s: got %v", a, err)
			}
		}
	}
}

func TestWorkerThatLeavesEarlyIsAnError(t *testing.T) {
	for _, a := range []policy.Architecture{policy.Servers, policy.AllReduce} {
		j := newJob(t, example(2, 2), a, 1)
		members := j.connect(t)
		_, errs := step(members, 0, 0.1)
		must(t, errs)
		left := make(chan error, 1)
		go func() { left <- members[1].Close() }()
		_, errs = step(members[:1], 1, 0.1)
		if errs[0] == nil || !strings.Contains(errs[0].Error(), "all workers must take the same number of steps") {
			t.Errorf("%s: got %v", a, errs[0])
		}
		within(t, left)
	}
}

func TestCanceledContextEndsStep(t *testing.T) {
	for _, a := range []policy.Architecture{policy.Servers, policy.AllReduce} {
		j := newJob(t, example(2, 2), a, 2)
		members := j.connect(t)
		ctx, cancel := context.WithCancelCause(context.Background())
		got := make(chan error, 1)
		go func() { // worker:1 never comes
			_, err := members[0].take(ctx, 0, 0.1, everyLeaf)
			got <- err
		}()
		why := errors.New("told to stop")
		cancel(why)
		if err := within(t, got); !errors.Is(err, why) {
			t.Errorf("%s: got %v", a, err)
		}
		if err := members[0].Begin(0.1); err == nil {
			t.Errorf("%s: a step after a broken one", a)
		}
	}
}

// If the caller misuses the API during a step, Finish returns an error that
// explains the mistake.
func TestFinishReportsMisuse(t *testing.T) {
	sums := [][]float64{{1, 0, 0}, {1, 0, 0}}
	all := func(m *member, leaves ...int) {
		for _, leaf := range leaves {
			m.compute(context.Background(), leaf, 0)
		}
	}
	for want, do := range map[string]func(m *member) error{
		"begun twice":                            func(m *member) error { m.Begin(0.1); return m.Begin(0.1) },
		"which was not begun":                    func(m *member) error { return nil },
		`variable "w" got no gradient`:           func(m *member) error { m.Begin(0.1); all(m, 0); return nil },
		"came twice in step 0":                   func(m *member) error { m.Begin(0.1); all(m, 0, 1); m.Contribute(0, 0); return nil },
		"declared absent":                        func(m *member) error { m.Begin(0.1, 1); all(m, 0, 1); return nil },
		"not one of this worker's":               func(m *member) error { return m.Begin(0.1, 2) },
		"this worker has virtual workers 0 to 1": func(m *member) error { m.Begin(0.1); m.Contribute(2, 0); return nil },
		"which is not sparse":                    func(m *member) error { m.Begin(0.1); m.ContributeRows(0, 0, nil, nil); return nil },
		"row 5 after row 5": func(m *member) error {
			m.Begin(0.1)
			m.ContributeRows(0, 5, []int64{5, 5}, make([]byte, 24))
			return nil
		},
		"rate NaN": func(m *member) error { m.Begin(nan()); all(m, 0, 1); return nil },
		"want for virtual worker 1 a loss and 2 metrics": func(m *member) error {
			m.Begin(0.1)
			all(m, 0, 1)
			_, err := m.Finish(context.Background(), sums[:1])
			return err
		},
	} {
		t.Run(want, func(t *testing.T) {
			j := newJob(t, mixed(2, 1), policy.AllReduce, 0)
			m := j.connect(t)[0]
			err := do(m)
			if err == nil {
				_, err = m.Finish(context.Background(), sums)
			}
			if err == nil || !strings.Contains(err.Error(), want) {
				t.Errorf("got %v", err)
			}
		})
	}
}
