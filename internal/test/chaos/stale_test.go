package chaos

import (
	"testing"

	"github.com/plx-run/plx/internal/test/chaos/ledger"
)

func TestAuditOfStaleness(t *testing.T) {
	seen := func(other, less int) func(*world) {
		return func(w *world) { w.entries[len(w.entries)-2].Seen[other] -= less }
	}
	for name, c := range map[string]spoiled{
		"less than it had made": {wentOn, seen(2, 1), "worker:2 in generation 0 saw 78 steps of worker:2 before its own step 79, want 79 to 79"},
		"another in time":       {wentBack, seen(0, bound), ""},
	} {
		c.try(t, name, "async", "ssp")
	}
	late := spoiled{wentBack, seen(0, bound+1), "saw 48 steps of worker:0 before its own step 79, want 49 to 80"}
	late.try(t, "another too late", "ssp")
	late.want = ""
	late.try(t, "another too late", "async")
}

func begun(w *world, p push) *ledger.Entry {
	for i, e := range w.entries {
		if e.Push == p && e.Kind == ledger.Begun {
			return &w.entries[i]
		}
	}
	return nil
}

// In backup mode, a gradient that counts must be computed from exactly the
// earlier steps.
func TestAuditOfStalenessInBackup(t *testing.T) {
	for name, c := range map[string]spoiled{
		"one too few":        {inStep, func(w *world) { begun(w, push{Step: 30}).Seen[1]-- }, "worker:0 in generation 0 saw 29 steps of worker:1 before its own step 30, want 30 to 30"},
		"one too many":       {inStep, func(w *world) { begun(w, push{Step: 30}).Seen[1]++ }, "saw 31 steps of worker:1"},
		"one that came late": {inStep, func(w *world) { begun(w, push{Step: 30}).Seen[2]++ }, "saw 1 steps of worker:2"},
		"who comes too late": {inStep, func(w *world) { begun(w, push{Worker: 2, Step: 10}).Seen[1]++ }, ""},
		"one that nobody was told": {inStep, func(w *world) {
			w.cutOut(func(e ledger.Entry) bool {
				return e.Push == push{Generation: 1, Worker: 1, Step: 59} && e.Kind == ledger.Made
			})
			begun(w, push{Generation: 1, Step: 70}).Seen[1]--
		}, ""},
	} {
		c.try(t, name, "backup")
	}
}

// ahead returns a function for a job in which each worker resumes after its
// own step.
func ahead(cut ...int) func(string) *world {
	return func(mode string) *world {
		w := newWorld(mode)
		w.generation(0, []int{0, 0, 0}, 40, cut)
		w.generation(1, cut, ledger.Steps, nil)
		w.resumed = [][2]int{{cut[0], 0}}
		w.story.told[1] = loss{cut[0], 40 - cut[0]}
		return w
	}
}

// A worker that resumes too far ahead sees the others' steps only after it has
// waited for them.
func TestAuditOfStalenessAfterResumption(t *testing.T) {
	sees := func(step, n int) func(*world) {
		return func(w *world) { begun(w, push{Generation: 1, Worker: 1, Step: step}).Seen[2] = n }
	}
	for name, c := range map[string]spoiled{
		"before it waits": {ahead(28, 31, 26), sees(31, 0), ""},
		"enough":          {ahead(28, 31, 26), sees(32, 4), ""},
		"too few":         {ahead(28, 31, 26), sees(32, 3), "saw 3 steps of worker:2 before its own step 32, want 4 to 80"},
	} {
		c.try(t, name, "ssp")
	}
}

// ssp limits how far workers may be apart in a checkpoint, async does not.
func TestAuditOfBounds(t *testing.T) {
	well := func(*world) {}
	for name, c := range map[string]spoiled{
		"ahead":      {ahead(28, 32, 28), well, "worker:1 in generation 0: the checkpoint has its steps before 32, and the chief's before 28"},
		"behind":     {ahead(28, 28, 25), well, "worker:2 in generation 0: the checkpoint has its steps before 25, and the chief's before 28"},
		"far enough": {ahead(28, 31, 26), well, ""},
	} {
		c.try(t, name, "ssp")
		c.want = ""
		c.try(t, name, "async")
	}
	// The limit does not apply to a worker that was lost early.
	lost := spoiled{func(mode string) *world {
		w := newWorld(mode)
		w.lost[0] = []int{2}
		w.generation(0, []int{0, 0, 0}, 10, nil)
		for step := 10; step < 28; step++ {
			w.step(0, step, 3, 0, 1)
			w.add(push{Step: step}, 1)
			w.add(push{Worker: 1, Step: step}, 1)
		}
		w.generation(1, []int{28, 28, 10}, ledger.Steps, nil)
		w.resumed = [][2]int{{28, 0}}
		return w
	}, well, ""}
	lost.try(t, "lost early", "async", "ssp")
}
