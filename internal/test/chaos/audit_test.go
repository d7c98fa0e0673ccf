package chaos

import (
	"testing"

	"github.com/plx-run/plx/internal/test/chaos/ledger"
)

type push = ledger.Push

func TestAudit(t *testing.T) {
	for name, c := range map[string]spoiled{
		"back":                            {wentBack, func(*world) {}, ""},
		"on":                              {wentOn, func(*world) {}, ""},
		"fewer workers":                   {fewer, func(*world) {}, ""},
		"more workers":                    {more, func(*world) {}, ""},
		"back twice":                      {thrice, func(*world) {}, ""},
		"back to an older checkpoint":     {older, func(*world) {}, ""},
		"back to a newer checkpoint":      {newer, func(*world) {}, ""},
		"fewer workers for a while":       {between, func(*world) {}, ""},
		"twice":                           {wentOn, func(w *world) { w.add(push{Worker: 2, Step: 79}, 1) }, "applied 2 times"},
		"lost":                            {wentOn, func(w *world) { w.add(push{Worker: 2, Step: 3}, -1) }, "right: generation 0, worker:2, step 3: applied 0 times, want 1 to 1"},
		"lost of the lost":                {wentOn, func(w *world) { w.add(push{Worker: 1, Step: 39}, -1) }, "applied 0 times, want 1 to 1"},
		"a part":                          {wentOn, func(w *world) { w.add(push{Worker: 1, Step: 40}, -0.5, "left") }, "applied 0.5 times"},
		"what nobody began":               {wentOn, func(w *world) { w.add(push{Worker: 1, Step: 41}, 1) }, "applied 1 times, want 0 to 0"},
		"of whom nobody has heard":        {wentOn, func(w *world) { w.add(push{Generation: 1, Step: 3}, 1) }, "left: generation 1, worker:0, step 3: applied 1 times, want 0 to 0"},
		"a survivor is told nothing":      {wentOn, func(w *world) { w.lost[0] = nil }, "1 steps are begun and not ended"},
		"a survivor stops early":          {wentOn, func(w *world) { w.entries = w.entries[:len(w.entries)-2] }, "79 steps made"},
		"no count":                        {wentOn, func(w *world) { w.applied = nil }, "nobody has noted"},
		"after going back a step is lost": {wentBack, func(w *world) { w.add(push{Generation: 1, Worker: 2, Step: 28}, -1) }, "applied 0 times, want 1 to 1"},
		"after going back one is lost in a variable": {wentBack, func(w *world) { w.add(push{Generation: 1, Worker: 2, Step: 28}, -1, "table") },
			"table: generation 1, worker:2, step 28: applied 0 times, want 1 to 1"},
	} {
		c.try(t, name, "async", "ssp")
	}
}

// A checkpoint must be a consistent cut from which the same number of workers
// resumes.
func TestAuditOfCuts(t *testing.T) {
	for name, c := range map[string]spoiled{
		"of the chief's future":    {wentBack, func(w *world) { w.add(push{Step: 28}, 1) }, "step 28: applied 1 times, want 0 to 0; its checkpoint is a cut before step 28"},
		"the chief's last lacks":   {wentBack, func(w *world) { w.add(push{Step: 27}, -1) }, "step 27: applied 0 times, want 1"},
		"twice over generations":   {wentBack, func(w *world) { w.add(push{Worker: 1, Step: 30}, 1) }, "generation 0, worker:1, step 30: applied 1 times, want 0"},
		"skipped between the two":  {wentBack, func(w *world) { w.add(push{Worker: 1, Step: 29}, -1) }, "generation 0, worker:1, step 29: applied 0 times, want 1"},
		"a hole":                   {wentBack, func(w *world) { w.add(push{Worker: 2, Step: 20}, -1) }, "step 20: applied 0 times, want 1"},
		"twice in the past":        {wentBack, func(w *world) { w.add(push{Worker: 2, Step: 20}, 1) }, "applied 2 times, want 1"},
		"torn, one more in one":    {wentBack, func(w *world) { w.add(push{Worker: 1, Step: 30}, 1, "right") }, "right: generation 0, worker:1, step 30: applied 1 times, and in left 0 times"},
		"torn, fewer workers":      {fewer, func(w *world) { w.add(push{Worker: 1, Step: 30}, 1, "table") }, "table: generation 0, worker:1, step 30: applied 1 times, and in left 0 times"},
		"a hole, fewer workers":    {fewer, func(w *world) { w.add(push{Worker: 2, Step: 20}, -1) }, "step 20: applied 0 times, want 1"},
		"the chief, fewer workers": {fewer, func(w *world) { w.add(push{Step: 27}, -1) }, "step 27: applied 0 times, want 1"},
		"another end, fewer workers": {fewer, func(w *world) {
			w.add(push{Worker: 2, Step: 27}, 1)
			w.story.told[1] = loss{behind: 28, chief: 12}
		}, ""},
		"twice over three generations": {thrice, func(w *world) { w.add(push{Generation: 2, Worker: 2, Step: 51}, 1) }, "generation 2, worker:2, step 51: applied 1 times, want 0"},
		"skipped in the first":         {thrice, func(w *world) { w.add(push{Worker: 1, Step: 28}, -1) }, "generation 0, worker:1, step 28: applied 0 times, want 1"},
		"made in vain, and there":      {thrice, func(w *world) { w.add(push{Generation: 1, Worker: 2, Step: 27}, 1) }, "generation 1, worker:2, step 27: applied 1 times, want 0"},
	} {
		c.try(t, name, "async", "ssp")
	}
}

// untold returns a function for a job in which worker 2 had begun step 40 when
// all workers were killed. The checkpoint contains that step if in is set, or
// only in the named variables.
func untold(in bool, names ...string) func(mode string) *world {
	return func(mode string) *world {
		w := newWorld(mode)
		cut := []int{40, 40, 40}
		w.generation(0, []int{0, 0, 0}, 40, nil)
		w.begin(0, 40, 3, 2)
		if in {
			cut[2]++
		}
		if in || len(names) > 0 {
			w.add(push{Worker: 2, Step: 40}, 1, names...)
		}
		w.generation(1, cut, ledger.Steps, nil)
		w.resumed = [][2]int{{40, 0}}
		w.story.told[1] = loss{behind: 40}
		return w
	}
}

// A step that was begun when a generation ended must be in the checkpoint for
// all variables or for none.
func TestAuditOfUnreportedSteps(t *testing.T) {
	for name, c := range map[string]spoiled{
		"it is there":               {untold(true), func(*world) {}, ""},
		"it is not":                 {untold(false), func(*world) {}, ""},
		"in one variable":           {untold(false, "left"), func(*world) {}, "left 1 times"},
		"in two variables":          {untold(true, "left", "right"), func(*world) {}, "table: generation 0, worker:2, step 40: applied 0 times"},
		"there, and made again":     {untold(false, counters...), func(*world) {}, "step 40: applied 1 times, want 0"},
		"of the lost, in two":       {untold(true, "left", "right"), func(w *world) { w.lost[0] = []int{2} }, ""},
		"of the lost, made again":   {untold(false, "left"), func(w *world) { w.lost[0] = []int{2} }, "left: generation 0, worker:2, step 40: applied 1 times, want 0"},
		"of the lost, twice in one": {untold(true, "left"), func(w *world) { w.lost[0] = []int{2}; w.add(push{Worker: 2, Step: 40}, 1, "left") }, "applied 2 times"},
	} {
		c.try(t, name, "async", "ssp")
	}
}

// plx scale must not lose a step that was reported to a worker, even if plx
// reports it as lost.
func TestAuditOfScaling(t *testing.T) {
	oneMore := func(w *world) {
		extra := newWorld(w.mode)
		extra.told = map[key]int{{0, 0}: 28, {0, 1}: 28}
		extra.step(0, 28, 2, 1)
		w.entries = append(w.entries, extra.entries...)
		w.story.told[1] = loss{behind: 28}
	}
	for name, c := range map[string]spoiled{
		"one more":             {more, func(w *world) { oneMore(w); w.add(push{Worker: 1, Step: 28}, 1); delete(w.story.told, 1) }, ""},
		"one more and lost":    {more, oneMore, "step 28: applied 0 times, want 1 to 0"},
		"lost without a scale": {more, func(w *world) { oneMore(w); w.held[0] = false }, ""},
	} {
		c.try(t, name, "async", "ssp")
	}
}

// inStep returns a job in backup mode in which worker 2 is late for every
// step. It loses worker 1 after step 60 of the second generation.
func inStep(string) *world {
	w := newWorld("backup")
	w.generation(0, []int{0, 0, 0}, 0, nil)
	w.inTime(0, 0, 40, 28, 3, 0, 1)
	w.begin(0, 10, 3, 2)
	w.entries = append(w.entries, ledger.Entry{Push: push{Worker: 2, Step: 10}, Kind: ledger.Late})
	w.generation(1, []int{28, 28, 28}, 0, nil)
	w.inTime(1, 28, 60, ledger.Steps, 3, 0, 1)
	w.lost[1] = []int{1}
	w.inTime(1, 60, ledger.Steps, ledger.Steps, 3, 0, 2)
	w.resumed = [][2]int{{28, 0}}
	w.story.told[1] = loss{behind: 28, chief: 12}
	return w
}

// inTime simulates steps of some of all workers in backup mode. The steps
// before the cut are effective.
func (w *world) inTime(g, from, until, cut, all int, workers ...int) {
	for step := from; step < until; step++ {
		w.step(g, step, all, workers...)
		for _, worker := range workers {
			if step < cut {
				w.add(push{Generation: g, Worker: worker, Step: step}, 1)
			}
		}
	}
}

// inStepBack returns a job in backup mode that loses a host, makes ineffective
// steps with two workers, and then resumes with three from the same checkpoint
// as these two.
func inStepBack(string) *world {
	w := newWorld("backup")
	w.generation(0, []int{0, 0, 0}, 0, nil)
	w.inTime(0, 0, 40, 28, 3, 1, 2)
	w.generation(1, []int{28, 28}, 0, nil)
	w.inTime(1, 28, 50, 0, 2, 1)
	w.generation(2, []int{35, 35}, 0, nil)
	w.inTime(2, 35, 40, 0, 2, 0)
	w.generation(3, []int{28, 28, 28}, 0, nil)
	w.inTime(3, 28, ledger.Steps, ledger.Steps, 3, 0, 2)
	w.resumed = [][2]int{{28, 0}, {35, 1}}
	w.story.told[1] = loss{behind: 28, chief: 12}
	w.story.told[2] = loss{behind: 35, chief: 15}
	w.story.told[3] = loss{behind: 28, chief: 7 + 5}
	return w
}

// inStepFewer returns a job in backup mode that loses a host and resumes with
// two workers.
func inStepFewer(string) *world {
	w := newWorld("backup")
	w.generation(0, []int{0, 0, 0}, 0, nil)
	w.inTime(0, 0, 40, 28, 3, 1, 2)
	w.generation(1, []int{28, 28}, 0, nil)
	w.inTime(1, 28, ledger.Steps, ledger.Steps, 2, 1)
	w.resumed = [][2]int{{28, 0}}
	w.story.told[1] = loss{behind: 28, chief: 12}
	return w
}

func TestAuditOfBackup(t *testing.T) {
	lost := push{Generation: 1, Worker: 1, Step: 59}
	toldNothing := func(w *world) {
		w.cutOut(func(e ledger.Entry) bool { return e.Push == lost && e.Kind == ledger.Made })
	}
	for name, c := range map[string]spoiled{
		"well":          {inStep, func(*world) {}, ""},
		"back twice":    {inStepBack, func(*world) {}, ""},
		"fewer workers": {inStepFewer, func(*world) {}, ""},
		"late twice": {inStep, func(w *world) {
			w.entries = append(w.entries, ledger.Entry{Push: push{Worker: 2, Step: 10}, Kind: ledger.Late})
		}, "step 10 is late out of turn"},
		"the last of the lost":      {inStep, func(w *world) { toldNothing(w); w.add(lost, -1, "right") }, ""},
		"the last but one":          {inStep, func(w *world) { toldNothing(w); w.add(push{Generation: 1, Worker: 1, Step: 58}, -1) }, "step 58 has the gradients of 1 workers"},
		"told, and lost":            {inStep, func(w *world) { w.add(lost, -1) }, "applied 0 times, want 1 to 1"},
		"late and applied":          {inStep, func(w *world) { w.add(push{Worker: 2, Step: 10}, 1) }, "worker:2, step 10: applied 1 times, want 0 to 0"},
		"three in a step":           {inStep, func(w *world) { w.add(push{Worker: 2, Step: 10}, 1) }, "left: generation 0, step 10 has the gradients of 3 workers, want 2"},
		"behind the checkpoint":     {inStep, func(w *world) { w.add(push{Worker: 1, Step: 28}, 1) }, "step 28: applied 1 times, want 0 to 0; its checkpoint is a cut before step 28"},
		"lacking before it":         {inStep, func(w *world) { w.add(push{Worker: 1, Step: 27}, -1) }, "step 27: applied 0 times, want 1 to 1"},
		"too few before it":         {inStep, func(w *world) { w.add(push{Worker: 1, Step: 27}, -1) }, "left: generation 0, step 27 has the gradients of 1 workers, want 2"},
		"others before it":          {inStep, others(27, 1, 2, counters...), ""},
		"others in some variables":  {inStep, others(27, 1, 2, "left"), "right: generation 0, worker:2, step 27: applied 0 times, and in left 1 times"},
		"a worker with its own":     {inStep, beginsWith(1, 2, 29), "worker:2 in generation 1 begins with step 29, the chief with 28"},
		"late in the last, applied": {inStep, lateInTheLast, "step 79: applied 1 times, want 0 to 0"},
	} {
		c.try(t, name, "backup")
	}
}

// others returns a change to a job: one worker's last step of generation 0 is
// replaced by another worker's. The outcome of both steps was never reported.
func others(step, one, by int, names ...string) func(*world) {
	return func(w *world) {
		w.cutOut(func(e ledger.Entry) bool {
			return e.Generation == 0 && (e.Step > step || e.Step == step && e.Worker == one && e.Kind == ledger.Made)
		})
		w.story.told[1] = loss{behind: 28}
		w.begin(0, step, 3, by)
		w.entries[len(w.entries)-1].Seen[by] = 0
		w.add(push{Worker: one, Step: step}, -1, names...)
		w.add(push{Worker: by, Step: step}, 1, names...)
	}
}

// beginsWith returns a change to a job: a worker's ledger begins with a
// different step.
func beginsWith(g, worker, step int) func(*world) {
	return func(w *world) {
		for i, e := range w.entries {
			if e.Generation == g && e.Worker == worker && e.Kind == ledger.Joined {
				w.entries[i].Step = step
			}
		}
	}
}

func lateInTheLast(w *world) {
	for i, e := range w.entries {
		if e.Push == (push{Generation: 1, Worker: 2, Step: 79}) && e.Kind == ledger.Made {
			w.entries[i].Kind = ledger.Late
		}
	}
}
