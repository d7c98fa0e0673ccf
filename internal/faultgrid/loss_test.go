package main

import (
	"testing"

	"github.com/plx-run/plx/internal/faultgrid/ledger"
)

func TestLossOf(t *testing.T) {
	for text, want := range map[string]loss{
		"5 steps are made again":                                                      {chief: amount{n: 5}},
		"1 step is made again":                                                        {chief: amount{n: 1}},
		"at least 5 steps are made again":                                             {chief: amount{5, true}},
		"no step is made again":                                                       {},
		"no step of the chief is made again":                                          {},
		"steps made since are made again, it is not known how many":                   {chief: amount{0, true}, others: amount{0, true}},
		"5 steps of the chief are made again":                                         {chief: amount{n: 5}},
		"5 steps of the chief and 9 of other workers are made again":                  {chief: amount{n: 5}, others: amount{n: 9}},
		"1 step of the chief and 1 of another worker is made again":                   {chief: amount{n: 1}, others: amount{n: 1}},
		"1 step of the chief and 1 of other workers are made again":                   {chief: amount{n: 1}, others: amount{n: 1}},
		"no step of the chief and 9 of the other workers are made again":              {others: amount{n: 9}},
		"9 steps of other workers are made again":                                     {others: amount{n: 9}},
		"at least 5 steps of the chief and 9 of other workers are made again":         {chief: amount{5, true}, others: amount{9, true}},
		"5 steps of the chief are made again, and 9 of other workers are lost":        {chief: amount{n: 5}, others: amount{n: 9}},
		"at least 1 step of the chief is made again, and 9 of other workers are lost": {chief: amount{1, true}, others: amount{9, true}},
		"5 steps of the chief and at least 9 of other workers are made again":         {chief: amount{n: 5}, others: amount{9, true}},
	} {
		want.generation, want.behind = 2, 28
		if got, ok := lossOf("plx: generation 2 goes on behind step 28: " + text); !ok || got != want {
			t.Errorf("%s: %+v, %t", text, got, ok)
		}
	}
	for _, text := range []string{
		"plx: generation 2 goes on behind step 28: all is well",
		"worker:0 h1 ! plx: generation 2 goes on behind step 28: 5 steps are made again",
		"plx: generation 2 goes on",
	} {
		if got, ok := lossOf(text); ok {
			t.Errorf("%s: %+v", text, got)
		}
	}
}

func FuzzLossOf(f *testing.F) {
	f.Add("plx: generation 2 goes on behind step 28: at least 5 steps of the chief and 9 of other workers are made again")
	f.Add("plx: generation 2 goes on behind step 28: all is well")
	f.Add("plx: generation 2 goes on behind step 99999999999999999999: no step is made again")
	f.Fuzz(func(t *testing.T, text string) {
		l, ok := lossOf(text)
		for _, n := range []int{l.generation, l.behind, l.chief.n, l.others.n} {
			if n < -1 || !ok && n != 0 {
				t.Errorf("%+v, %t of %q", l, ok, text)
			}
		}
	})
}

// What plx says was lost is what is in the books and not in effect.
func TestAuditOfLosses(t *testing.T) {
	says := func(g int, chief, others amount) func(*world) {
		return func(w *world) { w.story.told[g] = loss{g, w.story.told[g].behind, chief, others} }
	}
	for name, c := range map[string]spoiled{
		"too few of the chief":    {wentBack, says(1, amount{n: 11}, amount{n: 23}), "12 steps of the chief were lost, and 0 more of which it was not told; plx says 11 (at least: false)"},
		"too many of the chief":   {wentBack, says(1, amount{n: 13}, amount{n: 23}), "plx says 13"},
		"too few of others":       {wentBack, says(1, amount{n: 12}, amount{n: 22}), "23 steps of other workers were lost, and 0 more of which it was not told; plx says 22"},
		"too many of others":      {wentBack, says(1, amount{n: 12}, amount{n: 24}), "plx says 24"},
		"at least":                {wentBack, says(1, amount{11, true}, amount{0, true}), ""},
		"at least too many":       {wentBack, says(1, amount{13, true}, amount{23, true}), "plx says 13 (at least: true)"},
		"behind another step":     {wentBack, func(w *world) { w.story.told[1] = loss{1, 27, amount{n: 12}, amount{n: 23}} }, "generation 1 goes on behind step 28, plx says 27"},
		"nothing":                 {wentBack, func(w *world) { delete(w.story.told, 1) }, "generation 1 has lost 12 steps of the chief and 23 of other workers, and nobody was told"},
		"two that were not told":  {wentBack, func(w *world) { w.begin(0, 40, 3, 1); w.begin(0, 40, 3, 2); says(1, amount{n: 12}, amount{n: 25})(w) }, ""},
		"none of those":           {wentBack, func(w *world) { w.begin(0, 40, 3, 1); w.begin(0, 40, 3, 2) }, ""},
		"three, two were not":     {wentBack, func(w *world) { w.begin(0, 40, 3, 1); w.begin(0, 40, 3, 2); says(1, amount{n: 12}, amount{n: 26})(w) }, "23 steps of other workers were lost, and 2 more of which it was not told; plx says 26"},
		"with the next":           {thrice, func(w *world) { delete(w.story.told, 1); says(2, amount{n: 14}, amount{n: 28})(w) }, ""},
		"with the next, too few":  {thrice, func(w *world) { delete(w.story.told, 1) }, "14 steps of the chief were lost"},
		"again with the next":     {thrice, says(2, amount{n: 14}, amount{n: 28}), "2 steps of the chief were lost"},
		"of the last, too few":    {thrice, says(3, amount{n: 10}, amount{n: 19}), "11 steps of the chief were lost"},
		"fewer workers":           {fewer, says(1, amount{n: 12}, amount{n: 22}), "23 steps of other workers were lost"},
		"no more than there were": {untold(true), says(1, amount{n: 1}, amount{}), "0 steps of the chief were lost"},
	} {
		c.try(t, name, "async", "ssp")
	}
	for name, c := range map[string]spoiled{
		"steps of the job":         {inStep, says(1, amount{n: 11}, amount{}), "12 steps of the chief were lost"},
		"not of each":              {inStep, says(1, amount{n: 12}, amount{n: 12}), "0 steps of other workers were lost"},
		"one that nobody was told": {inStep, func(w *world) { w.begin(0, 40, 3, 0); w.begin(0, 40, 3, 1); says(1, amount{n: 13}, amount{})(w) }, ""},
		"one that the chief was not told": {inStep, func(w *world) {
			w.cutOut(func(e ledger.Entry) bool { return e.Push == push{Step: 39} && e.Kind == ledger.Made })
			says(1, amount{n: 11}, amount{})(w)
		}, "12 steps of the chief were lost"},
		"one that another was not told": {inStep, func(w *world) {
			w.cutOut(func(e ledger.Entry) bool { return e.Push == push{Worker: 1, Step: 39} && e.Kind == ledger.Made })
			says(1, amount{n: 11}, amount{})(w)
		}, "12 steps of the chief were lost"},
		"the same steps of two generations": {inStepBack, func(w *world) {
			delete(w.story.told, 1)
			says(2, amount{n: 12 + 15}, amount{})(w)
		}, ""},
	} {
		c.try(t, name, "backup")
	}
}
