package chaos

import (
	"testing"

	"github.com/plx-run/plx/internal/test/chaos/ledger"
)

func TestLossOf(t *testing.T) {
	for text, want := range map[string]loss{
		"":                                       {},
		"; at least 1 step will be recomputed":   {chief: 1},
		"; at least 37 steps will be recomputed": {chief: 37},
		"; at least 999 steps will be recomputed": {chief: 999},
	} {
		want.behind = 28
		if g, got, ok := lossOf("plx: generation 2 resumes after step 28" + text); !ok || g != 2 || got != want {
			t.Errorf("%s: %d, %+v, %t", text, g, got, ok)
		}
	}
	for _, text := range []string{
		"plx: generation 2 resumes after step 28: all is well",
		"worker:0 h1 ! plx: generation 2 resumes after step 28",
		"plx: generation 2 resumes",
	} {
		if _, got, ok := lossOf(text); ok {
			t.Errorf("%s: %+v", text, got)
		}
	}
}

func FuzzLossOf(f *testing.F) {
	f.Add("plx: generation 2 resumes after step 28; at least 5 steps will be recomputed")
	f.Add("plx: generation 2 resumes after step 28: all is well")
	f.Add("plx: generation 2 resumes after step 99999999999999999999")
	f.Fuzz(func(t *testing.T, text string) {
		g, l, ok := lossOf(text)
		for _, n := range []int{g, l.behind, l.chief} {
			if n < -1 || !ok && n != 0 {
				t.Errorf("%+v, %t of %q", l, ok, text)
			}
		}
	})
}

// plx must report the step after which a generation resumes. It must not
// report more lost steps of the chief than the ledgers show.
func TestAuditOfLosses(t *testing.T) {
	says := func(g, chief int) func(*world) {
		return func(w *world) { w.story.told[g] = loss{w.story.told[g].behind, chief} }
	}
	for name, c := range map[string]spoiled{
		"fewer than were lost":    {wentBack, says(1, 11), ""},
		"all that were lost":      {wentBack, says(1, 12), ""},
		"too many":                {wentBack, says(1, 13), "the chief lost 12 steps, and 0 more of which it was not told; plx says at least 13"},
		"another step":            {wentBack, func(w *world) { w.story.told[1] = loss{27, 12} }, "generation 1 resumes after step 28, plx says 27"},
		"nothing":                 {wentBack, func(w *world) { delete(w.story.told, 1) }, "generation 1 has lost 12 steps of the chief, and nobody was told"},
		"one that was not told":   {wentBack, func(w *world) { w.begin(0, 40, 3, 0); says(1, 13)(w) }, ""},
		"two, one was not":        {wentBack, func(w *world) { w.begin(0, 40, 3, 0); says(1, 14)(w) }, "the chief lost 12 steps, and 1 more of which it was not told; plx says at least 14"},
		"with the next":           {thrice, func(w *world) { delete(w.story.told, 1); says(2, 14)(w) }, ""},
		"again with the next":     {thrice, says(2, 14), "the chief lost 2 steps"},
		"of the last, too many":   {thrice, says(3, 12), "the chief lost 11 steps"},
		"no more than there were": {untold(true), says(1, 1), "the chief lost 0 steps"},
	} {
		c.try(t, name, "async", "ssp")
	}
	for name, c := range map[string]spoiled{
		"steps of the job":         {inStep, says(1, 13), "the chief lost 12 steps"},
		"one that nobody was told": {inStep, func(w *world) { w.begin(0, 40, 3, 0); w.begin(0, 40, 3, 1); says(1, 13)(w) }, ""},
		"one that the chief was not told": {inStep, func(w *world) {
			w.cutOut(func(e ledger.Entry) bool { return e.Push == push{Step: 39} && e.Kind == ledger.Made })
			says(1, 13)(w)
		}, "the chief lost 12 steps"},
		"the same steps of two generations": {inStepBack, func(w *world) {
			delete(w.story.told, 1)
			says(2, 12+15)(w)
		}, ""},
	} {
		c.try(t, name, "backup")
	}
}
