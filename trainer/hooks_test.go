package trainer

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/plx-run/plx/trainer/config"
	"github.com/plx-run/plx/trainer/hooks"
)

// diary records the calls of one worker's hooks.
type diary struct {
	mu    sync.Mutex
	lines []string
}

func (d *diary) note(format string, args ...any) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.lines = append(d.lines, fmt.Sprintf(format, args...))
	return nil
}

// hook notes every moment.
func (d *diary) hook(name string) Hook {
	return Hook{
		Name:       name,
		Begin:      func(context.Context) error { return d.note("%s begin", name) },
		Before:     func(_ context.Context, step int) error { return d.note("%s before %d", name, step) },
		After:      func(_ context.Context, r Result) error { return d.note("%s after %d", name, r.Step) },
		Checkpoint: func(_ context.Context, steps int) error { return d.note("%s saved %d", name, steps) },
		End:        func(_ context.Context, steps int) error { return d.note("%s end %d", name, steps) },
		Gradient:   func(_ context.Context, g Gradient) error { return d.note("%s gradient %s", name, g.Variable) },
	}
}

// stepping returns a program that trains the regression with hooks, for at
// most the given number of steps.
func stepping(steps int, hooksOf func(j *Job) []Hook, options ...Option) func(context.Context, *Job) error {
	return func(ctx context.Context, j *Job) error {
		options := append([]Option{GlobalBatch(12), Hooks(hooksOf(j)...)}, options...)
		r, err := j.Parallelize(ctx, regression{}.build, SGD(0.1), options...)
		if err != nil {
			return err
		}
		from, to := r.Rows()
		for r.Steps() < steps {
			if _, err := r.Step(ctx, regression{}.feed(r.Steps(), from, to)); err != nil {
				return err
			}
		}
		return nil
	}
}

// modes lists the numbers of workers and the --sync modes with which hooks are
// tested.
var modes = []struct {
	name             string
	workers, servers int
	settings         []Setting
}{
	{"ps", 2, 1, []Setting{Arch("ps")}},
	{"all-reduce", 2, 0, []Setting{Arch("allreduce")}},
	{"async", 2, 1, []Setting{Arch("ps"), Sync("async")}},
	{"alone", 1, 0, nil},
}

// All hooks must be called at every moment, in the order in which they were
// passed. Hooks with ChiefOnly run only on the chief. Gradient is called
// between Before and After of its step.
func TestHooksAreCalledInOrder(t *testing.T) {
	for _, m := range modes {
		t.Run(m.name, func(t *testing.T) {
			dir := t.TempDir()
			tj := newTestJob(t, m.workers, m.servers, append(m.settings, everySteps(dir, 100))...)
			diaries := make([]diary, m.workers)
			errs := tj.end(stepping(2, func(j *Job) []Hook {
				d := &diaries[j.WorkerID()]
				chiefs := d.hook("c")
				chiefs.ChiefOnly = true
				return []Hook{d.hook("a"), chiefs}
			}))
			if err := errors.Join(append(errs, tj.wait())...); err != nil {
				t.Fatalf("%v\n%s", err, tj.logs[0])
			}
			for rank := range diaries {
				var want []string
				moment := func(text string, args ...any) {
					want = append(want, "a "+fmt.Sprintf(text, args...))
					if rank == 0 {
						want = append(want, "c "+fmt.Sprintf(text, args...))
					}
				}
				moment("begin")
				for step := range 2 {
					moment("before %d", step)
					moment("gradient w")
					moment("after %d", step)
				}
				if rank == 0 {
					moment("saved 2")
				}
				moment("end 2")
				if got := diaries[rank].lines; !slices.Equal(got, want) {
					t.Errorf("worker:%d: %q\nwant %q", rank, got, want)
				}
			}
		})
	}
}

// Hooks get the same results of a step as the program, and may call Evaluate
// and Values.
func TestHooksSeeResults(t *testing.T) {
	var twin regression
	var r *Session
	seen := 0
	look := Hook{Name: "look", After: func(ctx context.Context, result Result) error {
		done := twin.look(twin.rows(seen, 0, 12))
		twin.apply(done, 0.1, 0)
		if err := allNear("loss and metric", []float64{result.Loss, result.Metrics["mean guess"]}, []float64{done.loss, done.mean}); err != nil || result.Step != seen || len(result.Fetches["guess"]) != 1 {
			return fmt.Errorf("step %d: %+v: %v", seen, result, err)
		}
		evaluated, err := r.Evaluate(ctx, regression{}.feed(50, 0, 7))
		if err == nil && !near(evaluated.Loss, twin.look(twin.rows(50, 0, 7)).loss) {
			err = fmt.Errorf("evaluates to %v", evaluated.Loss)
		}
		if err != nil {
			return err
		}
		values, err := r.Values(ctx)
		if err != nil {
			return err
		}
		if seen++; r.Steps() != seen {
			return fmt.Errorf("after %d steps", r.Steps())
		}
		return twin.has(values)
	}}
	r, err := soloJob(io.Discard).Parallelize(t.Context(), regression{}.build, SGD(0.1), GlobalBatch(12), Hooks(look))
	if err != nil {
		t.Fatal(err)
	}
	for step := range 4 {
		if _, err := r.Step(t.Context(), regression{}.feed(step, 0, 12)); err != nil {
			t.Fatal(err)
		}
	}
	if seen != 4 {
		t.Errorf("the hook was called %d times", seen)
	}
}

// If a hook of one worker stops the training in step 3, all workers must end
// after that step, even those without data. In modes other than sync only the
// hook's own worker ends.
func TestHookStopsTraining(t *testing.T) {
	stopping := func(moment string, own bool) Hook {
		stop := func(at bool) error {
			if own && at {
				return ErrDone
			}
			return nil
		}
		h := Hook{Name: "stop"}
		switch moment {
		case "before":
			h.Before = func(_ context.Context, step int) error { return stop(step == 3) }
		case "after":
			h.After = func(_ context.Context, r Result) error { return stop(r.Step == 3) }
		}
		return h
	}
	for _, m := range modes {
		for _, moment := range []string{"before", "after"} {
			for who := range m.workers {
				for _, ending := range []Ending{WaitForAll, JoinOthers, EndTogether} {
					if m.name == "async" && ending == EndTogether {
						continue // no such thing
					}
					what := fmt.Sprintf("%s, %s, worker:%d, ending %d", m.name, moment, who, ending)
					tj := newTestJob(t, m.workers, m.servers, m.settings...)
					took := make([]int, m.workers)
					errs := tj.end(stepping(9, func(j *Job) []Hook {
						counting := Hook{Name: "count", After: func(context.Context, Result) error { took[j.WorkerID()]++; return nil }}
						return []Hook{stopping(moment, j.WorkerID() == who), counting}
					}, AtEndOfData(ending)))
					if err := errors.Join(append(errs, tj.wait())...); err != nil {
						t.Fatalf("%s: %v", what, err)
					}
					for rank, n := range took {
						want := 4
						if m.name == "async" && rank != who {
							want = 9
						}
						if n != want {
							t.Errorf("%s: worker:%d took %d steps, want %d", what, rank, n, want)
						}
					}
				}
			}
		}
	}
}

// Workers without data take part in the vote on whether to stop. The hook runs
// in every second step and stops the training in step 4, after which all
// workers must end.
func TestHookStopsWorkersWithoutData(t *testing.T) {
	for _, at := range architectures {
		tj := newTestJob(t, 3, at.servers, Arch(at.arch))
		errs := tj.end(func(ctx context.Context, j *Job) error {
			stop := Hook{Name: "stop", EverySteps: 2, After: func(_ context.Context, r Result) error {
				if j.WorkerID() == 1 && r.Step >= 3 {
					return ErrDone
				}
				return nil
			}}
			r, err := j.Parallelize(ctx, regression{}.build, SGD(0.1), GlobalBatch(12), AtEndOfData(JoinOthers), Hooks(stop))
			if err != nil {
				return err
			}
			from, to := r.Rows()
			for range []int{2, 9, 9}[j.WorkerID()] {
				if _, err := r.Step(ctx, regression{}.feed(r.Steps(), from, to)); err != nil {
					return err
				}
			}
			return nil
		})
		if err := errors.Join(append(errs, tj.wait())...); err != nil {
			t.Fatalf("%s: %v", at.arch, err)
		}
		for rank, j := range tj.jobs {
			if steps := j.session.Load().Steps(); steps != 5 {
				t.Errorf("%s: worker:%d ended after %d steps, want 5", at.arch, rank, steps)
			}
		}
	}
}

// If a hook fails or panics, its task's error names the hook and the step. The
// errors of the other tasks name that task.
func TestHookErrorsEndTheTask(t *testing.T) {
	no := errors.New("no")
	for want, h := range map[string]Hook{
		`step 2: hook "bad": before the step: no`:          {Before: func(_ context.Context, step int) error { return when(step == 2, no) }},
		`step 2: hook "bad": after the step: no`:           {After: func(_ context.Context, r Result) error { return when(r.Step == 2, no) }},
		`step 2: hook "bad": gradient of "w": no`:          {Gradient: func(_ context.Context, g Gradient) error { return when(g.Step == 2, no) }},
		`step 2: hook "bad": after the step: panic: boom`:  {After: func(_ context.Context, r Result) error { return panics(r.Step == 2) }},
		`step 2: hook "bad": gradient of "w": panic: boom`: {Gradient: func(_ context.Context, g Gradient) error { return panics(g.Step == 2) }},
	} {
		h.Name = "bad"
		tj := newTestJob(t, 2, 1, Arch("ps"))
		errs := tj.end(func(ctx context.Context, j *Job) error {
			h := h
			if j.IsChief() { // every worker has this hook; it fails on worker 1
				h = harmless(h)
			}
			err := stepping(9, func(*Job) []Hook { return []Hook{h} })(ctx, j)
			j.network.group.Close() // closes the connections, as the end of the process would
			return err
		})
		if err := errs[1]; err == nil || err.Error() != want {
			t.Errorf("worker:1: %v, want %s", err, want)
		}
		if _, panicked := errors.AsType[*hooks.PanicError](errs[1]); panicked != strings.Contains(want, "panic") {
			t.Errorf("%s: the stack is kept: %t", want, panicked)
		}
		if err := errs[0]; err == nil || !strings.Contains(err.Error(), "worker:1") {
			t.Errorf("%s: worker:0: %v, want one that names worker:1", want, err)
		}
	}
}

// harmless returns a hook with the same set of functions as h, each of which
// does nothing.
func harmless(h Hook) Hook {
	if h.Before != nil {
		h.Before = func(context.Context, int) error { return nil }
	}
	if h.After != nil {
		h.After = func(context.Context, Result) error { return nil }
	}
	if h.Gradient != nil {
		h.Gradient = func(context.Context, Gradient) error { return nil }
	}
	return h
}

// If a hook calls Step, Step must return an error instead of a deadlock.
func TestHookMustNotCallStep(t *testing.T) {
	var r *Session
	h := Hook{Name: "greedy", After: func(ctx context.Context, _ Result) error {
		_, err := r.Step(ctx, regression{}.feed(1, 0, 12))
		return err
	}}
	r, err := soloJob(io.Discard).Parallelize(t.Context(), regression{}.build, SGD(0.1), GlobalBatch(12), Hooks(h))
	if err != nil {
		t.Fatal(err)
	}
	if _, err := r.Step(t.Context(), regression{}.feed(0, 0, 12)); err == nil || !strings.Contains(err.Error(), `hook "greedy" takes a step`) {
		t.Errorf("got %v", err)
	}
}

func when(now bool, err error) error {
	if now {
		return err
	}
	return nil
}

func panics(now bool) error {
	if now {
		panic("boom")
	}
	return nil
}

// Parallelize must reject invalid hooks, and hooks that differ between
// workers.
func TestInvalidHooksAreRefused(t *testing.T) {
	h := Hook{Name: "x", End: func(context.Context, int) error { return nil }}
	negative := h
	negative.EverySteps = -3
	for want, list := range map[string][]Hook{
		`parallelize: two hooks have the name "x"`: {h, h},
		`parallelize: hook "x": EverySteps is -3`:  {negative},
	} {
		if _, err := soloJob(io.Discard).Parallelize(t.Context(), regression{}.build, SGD(0.1), GlobalBatch(12), Hooks(list...)); err == nil || !strings.HasPrefix(err.Error(), want) {
			t.Errorf("got %v, want %s", err, want)
		}
	}
	tj := newTestJob(t, 2, 1, Arch("ps"))
	errs := tj.end(stepping(1, func(j *Job) []Hook {
		if j.IsChief() {
			return []Hook{h}
		}
		return nil
	}))
	text := fmt.Sprint(errors.Join(errs...))
	if !strings.Contains(text, "declares a different training") || !strings.Contains(text, `"x" (end, every step)`) ||
		!strings.Contains(text, "every worker must pass the same hooks, including those with ChiefOnly") {
		t.Errorf("workers with other hooks: %v", text)
	}
}

// doubled is a hook that multiplies every gradient by 2, including those of
// table rows.
var doubled = Hook{Name: "double", Gradient: func(_ context.Context, g Gradient) error {
	for i, values := 0, g.Values.([]float32); i < len(values); i++ {
		values[i] *= 2
	}
	return nil
}}

// With SGD, a hook that doubles gradients must have the same effect as twice
// the learning rate. The bits must be the same for 1, 2 and 4 workers.
func TestGradientHookKeepsBits(t *testing.T) {
	for name, x := range map[string]trial{
		"mlp": {build: dropoutMLP, feed: classified(60), steps: 4}, "embedding": {build: words, feed: sentences, steps: 4},
	} {
		x.options = []Option{GlobalBatch(24)}
		x.opt = SGD(0.25)
		half := x.alone(t, VirtualWorkers(4))
		x.opt = SGD(0.5)
		want := x.alone(t, VirtualWorkers(4))
		if want.digest == half.digest {
			t.Errorf("%s: the rate changes nothing", name)
		}
		x.opt, x.options = SGD(0.25), append(x.options, Hooks(doubled))
		for _, workers := range []int{1, 2, 4} {
			for _, at := range []architecture{{"ps", 1}, {"allreduce", 0}} {
				for _, lanes := range []int{1, 3} {
					tj := newTestJob(t, workers, at.servers, VirtualWorkers(4), Arch(at.arch), scattered, flags(func(c *config.Config) { c.ParallelReplicas = lanes }))
					done, err := x.together(tj)
					if err == nil {
						done.norms, err = want.norms, done.same(trained{want.digest, want.losses, done.norms})
					}
					if err != nil {
						t.Errorf("%s: %d workers, %s, %d replicas: %v", name, workers, at.arch, lanes, err)
					}
				}
			}
		}
	}
}

// A hook must get the row numbers along with the gradient of an embedding.
func TestGradientHookSeesRows(t *testing.T) {
	var seen atomic.Int32 // atomic, because two virtual workers call the hook at the same time
	look := Hook{Name: "look", Gradient: func(_ context.Context, g Gradient) error {
		if g.Variable != "table" {
			return when(g.Rows != nil, fmt.Errorf("%q has rows", g.Variable))
		}
		seen.Add(1)
		if !slices.IsSorted(g.Rows) || !slices.Equal(g.Shape, []int{len(g.Rows), wordWidth}) || len(g.Values.([]float32)) != len(g.Rows)*wordWidth {
			return fmt.Errorf("rows %v, shape %v, %d values", g.Rows, g.Shape, len(g.Values.([]float32)))
		}
		return nil
	}}
	trial{build: words, feed: sentences, opt: SGD(0.1), options: []Option{GlobalBatch(24), Hooks(look)}, steps: 3}.alone(t, VirtualWorkers(2))
	if seen := seen.Load(); seen != 6 {
		t.Errorf("the hook saw rows %d times, want 6", seen)
	}
}

// On a GPU, hooks must get the gradients that the GPU has computed. The CPU
// then updates the variables.
func TestGradientHookOnGPU(t *testing.T) {
	x := trial{build: dropoutMLP, feed: classified(60), opt: SGD(0.5), options: []Option{GlobalBatch(8)}, steps: 3}
	want, err := x.run(onGPU(t, soloJob(io.Discard), true))
	if err != nil {
		t.Fatal(err)
	}
	var log strings.Builder
	j := onGPU(t, soloJob(&log), false)
	j.log.level = -8
	x.opt, x.options = SGD(0.25), append(x.options, Hooks(doubled))
	got, err := x.run(j)
	if err != nil {
		t.Fatal(err)
	}
	if err := got.same(trained{want.digest, want.losses, got.norms}); err != nil {
		t.Error(err)
	}
	if !strings.Contains(log.String(), "updates on the CPU: hooks see the gradients") {
		t.Errorf("the start line does not say why the CPU updates:\n%s", &log)
	}
}

// If a hook sets a gradient to NaN or Inf, the step must fail before that
// gradient is sent.
func TestNonFiniteHookGradientIsReported(t *testing.T) {
	spoil := Hook{Name: "spoil", Gradient: func(_ context.Context, g Gradient) error {
		zero := g.Values.([]float64)[0] - g.Values.([]float64)[0]
		g.Values.([]float64)[0] = 1 / zero
		return nil
	}}
	tj := newTestJob(t, 1, 0)
	errs := tj.end(stepping(1, func(*Job) []Hook { return []Hook{spoil} }))
	if err := errors.Join(errs...); err == nil || !strings.Contains(err.Error(), `the gradient of "w" is not finite`) {
		t.Errorf("got %v", err)
	}
}
