package main

import (
	"slices"
	"strings"
	"testing"

	"github.com/plx-run/plx/internal/faultgrid/ledger"
)

// world is a job as it should be: three workers of which the chief saves behind
// step 28 and the last generation is the second, where a generation ends at
// step 40 of everybody's; with nobody lost there is one generation.
type world struct {
	account
	told map[key]int // steps made
}

func newWorld(mode string) *world {
	w := &world{account{mode: mode, applied: ledger.Applied{}}, map[key]int{}}
	for _, name := range counters {
		w.applied[name] = make([]float64, ledger.Rows)
	}
	return w
}

// join lets all workers join a generation.
func (w *world) join(generation, from int) {
	for worker := range ledger.Workers {
		w.entries = append(w.entries, ledger.Entry{Push: ledger.Push{Generation: generation, Worker: worker, Step: from}, Kind: ledger.Joined})
	}
}

// step lets workers make a step, which is applied so often.
func (w *world) step(generation, step int, times float64, workers ...int) {
	for _, worker := range workers {
		p := ledger.Push{Generation: generation, Worker: worker, Step: step}
		seen := make([]int, ledger.Workers)
		for i := range seen {
			seen[i] = w.told[key{generation, i}]
		}
		w.entries = append(w.entries, ledger.Entry{Push: p, Kind: ledger.Begun, Seen: seen}, ledger.Entry{Push: p, Kind: ledger.Made})
		for _, name := range counters {
			w.applied[name][p.Row()] += times
		}
	}
	for _, worker := range workers {
		w.told[key{generation, worker}]++
	}
}

// finish makes the steps of the last generation.
func (w *world) finish(generation, from int, workers ...int) {
	for step := from; step < ledger.Steps; step++ {
		w.step(generation, step, 1, workers...)
	}
}

// wentBack is a job that went back behind step 28, worker 1 being two steps
// further then.
func wentBack(mode string) *world {
	w := newWorld(mode)
	w.join(0, 0)
	for step := range 40 {
		times := 0.0
		if step < 28 {
			times = 1
		}
		w.step(0, step, times, 0, 2)
		if step < 30 {
			times = 1
		}
		w.step(0, step, times, 1)
	}
	w.join(1, 28)
	w.finish(1, 28, 0, 1, 2)
	return w
}

// wentOn is a job that lost worker 1, in its step 40.
func wentOn(mode string) *world {
	w := newWorld(mode)
	w.lost = []int{1}
	w.join(0, 0)
	for step := range 40 {
		w.step(0, step, 1, 0, 1, 2)
	}
	w.entries = append(w.entries, ledger.Entry{Push: ledger.Push{Worker: 1, Step: 40}, Kind: ledger.Begun})
	w.applied["left"][ledger.Push{Worker: 1, Step: 40}.Row()] = 1
	w.finish(0, 40, 0, 2)
	return w
}

func (w *world) add(name string, p ledger.Push, n float64) { w.applied[name][p.Row()] += n }

func TestAudit(t *testing.T) {
	for name, c := range map[string]struct {
		world func(string) *world
		spoil func(*world)
		want  string // "": all is well
	}{
		"back":                            {wentBack, func(*world) {}, ""},
		"on":                              {wentOn, func(*world) {}, ""},
		"twice":                           {wentOn, func(w *world) { w.add("table", ledger.Push{Worker: 2, Step: 79}, 1) }, "applied 2 times"},
		"lost":                            {wentOn, func(w *world) { w.add("right", ledger.Push{Worker: 2, Step: 3}, -1) }, "right: generation 0, worker:2, step 3: acknowledged and lost"},
		"lost of the lost":                {wentOn, func(w *world) { w.add("right", ledger.Push{Worker: 1, Step: 39}, -1) }, "acknowledged and lost"},
		"a part":                          {wentOn, func(w *world) { w.add("left", ledger.Push{Worker: 1, Step: 40}, -0.5) }, "applied 0.5 times"},
		"what nobody began":               {wentOn, func(w *world) { w.add("left", ledger.Push{Worker: 1, Step: 41}, 1) }, "never begun"},
		"a survivor is told nothing":      {wentOn, func(w *world) { w.lost = nil }, "its worker was told nothing"},
		"a survivor stops early":          {wentOn, func(w *world) { w.entries = w.entries[:len(w.entries)-2] }, "79 steps made"},
		"no count":                        {wentOn, func(w *world) { w.applied = nil }, "nobody has noted"},
		"of the future":                   {wentBack, func(w *world) { w.add("left", ledger.Push{Step: 28}, 1) }, "applied 1 times, want 0: the checkpoint is of step 28"},
		"the checkpoint lacks one":        {wentBack, func(w *world) { w.add("left", ledger.Push{Step: 27}, -1) }, "applied 0 times, want 1"},
		"a hole":                          {wentBack, func(w *world) { w.add("left", ledger.Push{Worker: 2, Step: 20}, -1) }, "lost, while step 27 is not"},
		"twice in the past":               {wentBack, func(w *world) { w.add("left", ledger.Push{Worker: 2, Step: 20}, 1) }, "applied 2 times"},
		"after going back a step is lost": {wentBack, func(w *world) { w.add("table", ledger.Push{Generation: 1, Worker: 2, Step: 28}, -1) }, "acknowledged and lost"},
		"it saw less than it had made":    {wentOn, func(w *world) { w.entries[len(w.entries)-2].Seen[2]-- }, "saw 78 of its 79 steps"},
		"a book in which two are unfinished": {wentOn, func(w *world) {
			w.entries = append(w.entries, ledger.Entry{Push: ledger.Push{Worker: 1, Step: 41}, Kind: ledger.Begun})
		}, "2 steps are begun and not ended"},
		"made before it was begun": {wentOn, func(w *world) {
			w.entries = append(w.entries, ledger.Entry{Push: ledger.Push{Worker: 1, Step: 41}, Kind: ledger.Made})
		}, "step 41 is made out of turn"},
	} {
		for _, mode := range []string{"async", "ssp"} {
			w := c.world(mode)
			c.spoil(w)
			err := w.audit()
			if c.want == "" && err != nil || c.want != "" && (err == nil || !strings.Contains(err.Error(), c.want)) {
				t.Errorf("%s, %s: %v, want %q", mode, name, err, c.want)
			}
		}
	}
}

// What ssp bounds, async does not.
func TestAuditOfBounds(t *testing.T) {
	for name, c := range map[string]struct {
		spoil func(*world)
		want  string
	}{
		"another is seen too late": {func(w *world) { w.entries[len(w.entries)-2].Seen[0] -= bound + 1 }, "saw worker:0 at step 76 before its own step 79"},
		"another is seen in time":  {func(w *world) { w.entries[len(w.entries)-2].Seen[0] -= bound }, ""},
		"too far ahead in the checkpoint": {func(w *world) {
			for _, name := range counters {
				w.add(name, ledger.Push{Worker: 1, Step: 30}, 1)
				w.add(name, ledger.Push{Worker: 1, Step: 31}, 1)
			}
		}, "worker:1, step 31: the last that is there, 27 being the chief's"},
	} {
		for _, mode := range []string{"async", "ssp"} {
			w := wentBack(mode)
			c.spoil(w)
			err := w.audit()
			if bad := mode == "ssp" && c.want != ""; bad != (err != nil) || bad && !strings.Contains(err.Error(), c.want) {
				t.Errorf("%s, %s: %v, want %q", mode, name, err, c.want)
			}
		}
	}
}

// A generation that made no checkpoint has left nothing.
func TestAuditOfAGenerationInVain(t *testing.T) {
	build := func() *world {
		w := newWorld("async")
		w.join(0, 0)
		for step := range 30 {
			times := 0.0
			if step < 21 {
				times = 1
			}
			w.step(0, step, times, 0, 1, 2)
		}
		w.join(1, 21)
		w.step(1, 21, 0, 0, 1, 2)
		w.join(2, 21)
		w.finish(2, 21, 0, 1, 2)
		return w
	}
	w := build()
	if err := w.audit(); err != nil {
		t.Error(err)
	}
	w = build()
	w.add("left", ledger.Push{Generation: 1, Worker: 1, Step: 21}, 1)
	if err := w.audit(); err == nil || !strings.Contains(err.Error(), "there, though the job went back behind step 21") {
		t.Error(err)
	}
}

func TestAuditOfBackup(t *testing.T) {
	build := func() *world {
		w := newWorld("backup")
		w.lost = []int{1}
		w.join(0, 0)
		for step := range 40 {
			w.step(0, step, 1, 0, 1)
			w.entries = append(w.entries, ledger.Entry{Push: ledger.Push{Worker: 2, Step: step}, Kind: ledger.Begun, Seen: []int{0, 0, 0}},
				ledger.Entry{Push: ledger.Push{Worker: 2, Step: step}, Kind: ledger.Late})
		}
		w.finish(0, 40, 0, 2)
		return w
	}
	lost := ledger.Push{Worker: 1, Step: 39}
	for name, c := range map[string]struct {
		spoil func(*world)
		want  string
	}{
		"well": {func(*world) {}, ""},
		"the last of who was lost is in one variable": {func(w *world) {
			w.add("right", lost, -1)
			w.entries = without39(w.entries)
		}, ""},
		"late and applied": {func(w *world) { w.add("left", ledger.Push{Worker: 2, Step: 3}, 1) }, "said to be late, and applied"},
		"three in a step":  {func(w *world) { w.add("left", ledger.Push{Worker: 2, Step: 3}, 1) }, "left: step 3 has the gradients of 3 workers, want 2"},
		"two are short":    {func(w *world) { w.add("left", lost, -1); w.add("left", ledger.Push{Worker: 1, Step: 38}, -1) }, "step 39 has the gradients of 1 workers"},
	} {
		w := build()
		c.spoil(w)
		err := w.audit()
		if c.want == "" && err != nil || c.want != "" && (err == nil || !strings.Contains(err.Error(), c.want)) {
			t.Errorf("%s: %v, want %q", name, err, c.want)
		}
	}
}

// without39 are entries of a worker that was never told of its step 39.
func without39(all []ledger.Entry) (kept []ledger.Entry) {
	for _, e := range all {
		if e.Worker != 1 || e.Step != 39 || e.Kind != ledger.Made {
			kept = append(kept, e)
		}
	}
	return kept
}

func TestLostWorkers(t *testing.T) {
	for text, want := range map[string][]int{
		"1 plx: worker:1 on h2 was ended by signal 9 (killed); the job goes on without it":                                                                          {1},
		"1 plx: host h2: not heard for 5s; the job goes on without worker:1, worker:2":                                                                              {1, 2},
		"1 worker:0 h1 ! plx: worker:1 on h2 has gone; the job goes on without it":                                                                                  nil,
		"1 plx: worker:2 on h3 failed: x; the job goes on without it\n2 plx: restarted (1 of 3) after host h1: lost; generation 1 starts on 2 hosts with 2 workers": nil,
	} {
		if got := lostWorkers(told(t, text)); !slices.Equal(got, want) {
			t.Errorf("%s: %v, want %v", text, got, want)
		}
	}
}
