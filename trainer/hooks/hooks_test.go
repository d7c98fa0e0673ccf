package hooks

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/plx-run/plx/trainer/layout"
	"github.com/plx-run/plx/trainer/replica"
)

func after(do func()) func(context.Context, replica.Result) error {
	return func(context.Context, replica.Result) error { do(); return nil }
}

// Check rejects an invalid hook with an error that names the hook and what to
// do.
func TestInvalidHooksAreRefused(t *testing.T) {
	do := after(func() {})
	for want, list := range map[string][]Hook{
		`hook 1 has no name: set Hook.Name`:                  {{Name: "a", After: do}, {After: do}},
		`two hooks have the name "a": give each another one`: {{Name: "a", After: do}, {Name: "b", After: do}, {Name: "a", After: do}},
		`hook "a": EverySteps is -1: want at least 0`:        {{Name: "a", EverySteps: -1, After: do}},
		`hook "a": Every is -1s: want at least 0`:            {{Name: "a", Every: -time.Second, After: do}},
		`hook "a" has EverySteps and Every: set one of them`: {{Name: "a", EverySteps: 2, Every: time.Second, After: do}},
		`hook "a" has no function: set After or another one`: {{Name: "a"}},
	} {
		if err := Check(list); err == nil || err.Error() != want {
			t.Errorf("got %v, want %s", err, want)
		}
	}
	if err := Check(nil); err != nil {
		t.Errorf("no hooks: %v", err)
	}
	if r := New(nil, true); r != nil {
		t.Errorf("no hooks: %v", r)
	}
}

// A hook is called in every n-th step, counted from 0, and after a jump over
// such a step.
func TestHookWithEveryStepsIsCalledInThoseSteps(t *testing.T) {
	for _, c := range []struct {
		every int
		steps []int
		want  []int
	}{
		{0, []int{0, 1, 2}, []int{0, 1, 2}},
		{1, []int{5, 6}, []int{5, 6}},
		{3, []int{0, 1, 2, 3, 4, 5, 6, 7}, []int{0, 3, 6}},
		{3, []int{4, 5, 6, 7}, []int{6}},
		{3, []int{2, 4, 5, 10, 11}, []int{4, 10}},
	} {
		var got []int
		r := New([]Hook{{Name: "x", EverySteps: c.every, Before: func(_ context.Context, step int) error { got = append(got, step); return nil }}}, true)
		for _, step := range c.steps {
			if err := r.Before(t.Context(), step); err != nil {
				t.Error(err)
			}
		}
		if !slices.Equal(got, c.want) {
			t.Errorf("every %d of %v: %v, want %v", c.every, c.steps, got, c.want)
		}
	}
}

// A hook with Every is called in the first step, and again after the interval.
func TestHookWithEveryIsCalledAfterTheInterval(t *testing.T) {
	var got []int
	r := New([]Hook{{Name: "x", Every: 10 * time.Second, After: func(_ context.Context, r replica.Result) error { got = append(got, r.Step); return nil }}}, true)
	now := time.Unix(1000, 0)
	r.now = func() time.Time { return now }
	for step := 7; step < 17; step++ {
		if err := errors.Join(r.Before(t.Context(), step), r.After(t.Context(), replica.Result{Step: step})); err != nil {
			t.Fatal(err)
		}
		if !r.Votes(step) {
			t.Errorf("no vote after step %d, in which the hook may have been called elsewhere", step)
		}
		now = now.Add(4 * time.Second)
	}
	if fmt.Sprint(got) != "[7 10 13 16]" {
		t.Errorf("called in steps %v", got)
	}
}

// Workers vote after each step in which a hook of any worker may stop the
// training.
func TestWorkersVoteAfterStepsWithAStoppingHook(t *testing.T) {
	do := after(func() {})
	for _, c := range []struct {
		hook Hook
		want string
	}{
		{Hook{After: do, EverySteps: 3}, "[0 3 6]"},
		{Hook{After: do, EverySteps: 3, ChiefOnly: true}, "[0 3 6]"},
		{Hook{Begin: func(context.Context) error { return nil }}, "[0 1 2 3 4 5 6]"},
		{Hook{Checkpoint: func(context.Context, int) error { return nil }, EverySteps: 5}, "[0 5]"},
		{Hook{End: func(context.Context, int) error { return nil }}, "[]"},
		{Hook{Gradient: func(context.Context, Gradient) error { return nil }}, "[]"},
	} {
		for _, chief := range []bool{true, false} {
			c.hook.Name = "x"
			r := New([]Hook{c.hook}, chief)
			votes := []int{}
			for step := range 7 {
				if r.Votes(step) {
					votes = append(votes, step)
				}
			}
			if fmt.Sprint(votes) != c.want {
				t.Errorf("%v: votes after %v, want %v", &c.hook, votes, c.want)
			}
		}
	}
}

// The error of a failed or panicking hook names the hook and its function, and
// wraps what the hook returned.
func TestErrorsNameHookAndMoment(t *testing.T) {
	broken := errors.New("broken")
	for want, h := range map[string]Hook{
		`hook "x": begin: broken`:                {Begin: func(context.Context) error { return broken }},
		`hook "x": before the step: broken`:      {Before: func(context.Context, int) error { return broken }},
		`hook "x": after the step: broken`:       {After: func(context.Context, replica.Result) error { return broken }},
		`hook "x": checkpoint of step 4: broken`: {Checkpoint: func(context.Context, int) error { return broken }},
		`hook "x": end: broken`:                  {End: func(context.Context, int) error { return broken }},
		`hook "x": after the step: panic: bad`:   {After: after(func() { panic("bad") })},
	} {
		h.Name = "x"
		r := New([]Hook{h}, true)
		ctx := t.Context()
		var err error
		for _, do := range []func() error{
			func() error { return r.Before(ctx, 3) }, func() error { return r.After(ctx, replica.Result{Step: 3}) },
			func() error { return r.AfterSave(ctx, 4) }, func() error { return r.End(ctx, 4) },
		} {
			if err = do(); err != nil {
				break
			}
		}
		_, panicked := errors.AsType[*PanicError](err)
		if err == nil || err.Error() != want || !panicked && !errors.Is(err, broken) {
			t.Errorf("got %v, want %s", err, want)
		}
	}
}

// Enter returns an error if a hook itself takes a step.
func TestHookThatTakesAStepIsRefused(t *testing.T) {
	var r *Runner
	r = New([]Hook{{Name: "x", Before: func(ctx context.Context, step int) error {
		_, err := r.Enter(ctx)
		return err
	}}}, true)
	leave, err := r.Enter(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer leave()
	if err := r.Before(t.Context(), 0); err == nil || !strings.Contains(err.Error(), `hook "x" takes a step`) {
		t.Errorf("got %v", err)
	}
}

// Hooks do not block the run of the model. Gradients are sent in order, each
// after its hooks, and none after an error.
func TestGradientsAreSentInOrderAfterTheirHooks(t *testing.T) {
	going, order := make(chan struct{}), ""
	variable := layout.Variable{Name: "w", Dtype: layout.Float32, Shape: []int{2}}
	var fails atomic.Bool
	r := New([]Hook{
		{Name: "slow", Gradient: func(_ context.Context, g Gradient) error {
			<-going
			order += fmt.Sprintf("%s@%d/%d ", g.Variable, g.Step, g.VirtualWorker)
			for i := range g.Values.([]float32) {
				g.Values.([]float32)[i] *= 2
			}
			return nil
		}},
		{Name: "fails", Gradient: func(_ context.Context, g Gradient) error {
			if fails.Load() {
				return ErrDone
			}
			return nil
		}},
		{Name: "other steps", EverySteps: 2, Gradient: func(context.Context, Gradient) error { return errors.New("not in this step") }},
		{Name: "the chief's", ChiefOnly: true, Gradient: func(context.Context, Gradient) error { return errors.New("not on this worker") }},
	}, false)
	if err := r.Before(t.Context(), 3); err != nil {
		t.Fatal(err)
	}
	memory := []byte{0, 0, 0x80, 0x3f, 0, 0, 0, 0x40} // 1, 2
	line := r.Gradients(t.Context(), 3, 5)
	line.Take(GradientOf(variable, nil, memory), func() { order += "sent " })
	line.Follow(func() { order += "followed " })
	close(going) // the first hook returns only now, so Take and Follow have not waited for it
	if err := line.Wait(); err != nil || order != "w@3/5 sent followed " {
		t.Errorf("%q, %v", order, err)
	}
	if fmt.Sprint(memory) != fmt.Sprint([]byte{0, 0, 0, 0x40, 0, 0, 0x80, 0x40}) {
		t.Errorf("memory %v, want that of 2 and 4", memory)
	}

	fails.Store(true)
	order = ""
	line = r.Gradients(t.Context(), 3, 5)
	line.Take(GradientOf(variable, nil, memory), func() { order += "sent " })
	line.Follow(func() { order += "followed " })
	err := line.Wait()
	if err == nil || errors.Is(err, ErrDone) || order != "w@3/5 " ||
		!strings.Contains(err.Error(), `hook "fails": gradient of "w": it returned ErrDone: only Begin, Before, After and Checkpoint stop a training`) {
		t.Errorf("%q, %v", order, err)
	}
}

// In a step without hooks, gradients are sent at once.
func TestGradientsWithoutHooksAreSentAtOnce(t *testing.T) {
	var none *Runner
	r := New([]Hook{{Name: "x", EverySteps: 2, Gradient: func(context.Context, Gradient) error { return nil }}}, true)
	if err := r.Before(t.Context(), 1); err != nil {
		t.Fatal(err)
	}
	for _, line := range []*Gradients{none.Gradients(t.Context(), 1, 0), r.Gradients(t.Context(), 1, 0)} {
		sent := 0
		line.Take(Gradient{}, func() { sent++ })
		line.Follow(func() { sent++ })
		if err := errors.Join(line.Observe(Gradient{}), line.Wait()); err != nil || sent != 2 || line != nil {
			t.Errorf("%d were sent, %v, %v", sent, line, err)
		}
	}
}
