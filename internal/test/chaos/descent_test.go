package chaos

import (
	"slices"
	"testing"

	"github.com/plx-run/plx/internal/test/chaos/ledger"
)

func TestDescent(t *testing.T) {
	for name, c := range map[string]spoiled{
		"no word of a checkpoint": {wentBack, func(w *world) { w.resumed = nil }, "generation 1 begins with step 28, and no chief has said from which checkpoint"},
		"a checkpoint of its own": {wentBack, func(w *world) { w.resumed[0][1] = 1 }, "no chief has said"},
		"of another generation":   {thrice, func(w *world) { w.resumed[2][1] = 1 }, "generation 2, worker:0, step 28: applied 1 times, want 0"},
		"a worker begins anew":    {thrice, beginsWith(0, 1, 3), "worker:1 in generation 0 begins with step 3, the chief with 0"},
		"the chief is not there":  {wentBack, func(w *world) { w.cutOut(of(1, 0)) }, "the chief has noted nothing in generation 1, the last"},
		"a worker is not there":   {wentBack, func(w *world) { w.cutOut(of(0, 2)) }, "worker:2 has noted nothing in generation 0, which is in effect"},
		"it was not there in vain": {thrice, func(w *world) {
			w.cutOut(of(1, 2))
			w.story.told[1] = loss{behind: 28}
			w.story.told[2] = loss{behind: 28}
		}, ""},
		"nor was the chief": {thrice, func(w *world) {
			w.cutOut(of(1, 0))
			delete(w.story.told, 1)
			w.story.told[2] = loss{28, 12}
		}, ""},
		"nor was the chief, of which plx tells": {thrice, func(w *world) { w.cutOut(of(1, 0)) }, "plx says after which step generation 1 resumes, whose chief has noted nothing"},
		"fewer with a step of its own": {fewer, func(w *world) {
			w.cutOut(func(e ledger.Entry) bool {
				return e.Generation == 1 && e.Worker == 1 && e.Step == 28 && e.Kind != ledger.Joined
			})
			beginsWith(1, 1, 29)(w)
		}, "worker:1 in generation 1 begins with step 29, the chief with 28"},
		"in vain with another step": {thrice, func(w *world) {
			w.cutOut(func(e ledger.Entry) bool {
				return e.Generation == 1 && e.Worker == 2 && e.Step == 27 && e.Kind != ledger.Joined
			})
			beginsWith(1, 2, 28)(w)
		}, "worker:2 begins with step 28 in generation 1 and with 27 in 2, from the same checkpoint"},
		"all anew": {anew, func(*world) {}, ""},
	} {
		c.try(t, name, "async", "ssp")
	}
}

// of matches a worker's entries.
func of(g, worker int) func(ledger.Entry) bool {
	return func(e ledger.Entry) bool { return e.Generation == g && e.Worker == worker }
}

// anew returns a job that was killed before it had a checkpoint.
func anew(mode string) *world {
	w := newWorld(mode)
	w.generation(0, []int{0, 0, 0}, 5, []int{0, 0, 0})
	w.generation(1, []int{0, 0, 0}, ledger.Steps, nil)
	return w
}

func TestLedgerEntriesMustBeInOrder(t *testing.T) {
	last := func(w *world) *ledger.Entry { return &w.entries[len(w.entries)-1] }
	for name, c := range map[string]spoiled{
		"made before it was begun": {wentOn, func(w *world) {
			w.entries = append(w.entries, ledger.Entry{Push: push{Worker: 1, Step: 41}, Kind: ledger.Made})
		}, "step 41 is made out of turn"},
		"begun twice":    {wentOn, func(w *world) { w.begin(0, 40, 3, 1) }, "step 40 is begun out of turn"},
		"made twice":     {wentOn, func(w *world) { w.entries = append(w.entries, *last(w)) }, "step 79 is made out of turn"},
		"joined twice":   {wentOn, func(w *world) { w.entries = append(w.entries, w.entries[0]) }, "step 0 is joined out of turn"},
		"never joined":   {wentOn, func(w *world) { w.entries = w.entries[1:] }, "worker:0 in generation 0: step 0 is begun out of turn"},
		"a step skipped": {wentOn, func(w *world) { w.cutOut(func(e ledger.Entry) bool { return e.Worker == 2 && e.Step == 30 }) }, "step 31 is begun out of turn"},
		"late":           {wentOn, func(w *world) { last(w).Kind = ledger.Late }, "step 79 is late out of turn"},
		"two unfinished": {wentOn, func(w *world) { w.begin(0, 41, 3, 1) }, "2 steps are begun and not ended"},
		"nothing seen":   {wentOn, func(w *world) { w.begin(0, 41, 0, 1) }, "step 41 is begun out of turn"},
		"more workers":   {wentOn, func(w *world) { w.entries[1].Workers = 2 }, "step 0 is joined out of turn"},
		"a word unknown": {wentOn, func(w *world) { last(w).Kind = "x" }, "step 79 is x out of turn"},
		"behind the end": {over, func(*world) {}, ""},
	} {
		c.try(t, name, "async", "ssp")
	}
}

// over returns a job that was killed after all workers had made all their
// steps, while the chief made steps that count nothing.
func over(mode string) *world {
	w := newWorld(mode)
	w.generation(0, []int{0, 0, 0}, ledger.Steps, nil)
	w.generation(1, []int{ledger.Steps + 11, ledger.Steps, ledger.Steps}, 0, nil)
	w.resumed = [][2]int{{ledger.Steps + 11, 0}}
	return w
}

func TestStory(t *testing.T) {
	s := tell(told(t, `
		1 plx: worker:1 on h2 was ended by signal 9 (killed); the job goes on without it
		1 worker:0 h1 ! plx: generation 7 starts on 3 hosts
		2 worker:0 h1 ! plx: worker:2 on h1 has gone; the job goes on without it
		2 plx: worker:2 on h3 was ended by signal 9 (killed); the job goes on without it
		2 plx: worker:0 on h1 was ended by signal 9 (killed): restarting in 1s (attempt 1 of 3)
		3 plx: restarted (1 of 3): generation 1 starts on 3 hosts with 3 workers
		4 worker:0 h1 ! plx: going on after step 28, from checkpoint 000000000028-g0-5f3a9c1e of job a, made 2s ago
		4 plx: host h2: not heard for 5s; the job goes on without worker:1, worker:2
		5 plx: generation 1 resumes after step 28; at least 5 steps will be recomputed
		6 plx: scaling: saved after step 41, generation 1 is ended
		6 plx: saved after step 41 to continue on other hosts; generation 2 starts on 3 hosts with 3 workers
		7 worker:0 h1 ! plx: going on after step 41, from checkpoint 000000000041-g1-5f3a9c1e of job a, made 0s ago`))
	if !slices.Equal(s.lost[0], []int{1, 2}) || !slices.Equal(s.lost[1], []int{1, 2}) || len(s.lost) != 2 {
		t.Errorf("lost: %v", s.lost)
	}
	if want := (loss{28, 5}); s.told[1] != want || len(s.told) != 1 {
		t.Errorf("told: %+v", s.told)
	}
	if !s.held[1] || len(s.held) != 1 {
		t.Errorf("held: %v", s.held)
	}
	if !slices.Equal(s.resumed, [][2]int{{28, 0}, {41, 1}}) {
		t.Errorf("resumed: %v", s.resumed)
	}
	if number("99999999999999999999") != -1 {
		t.Error("too many digits are a number")
	}
}
