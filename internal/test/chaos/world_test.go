package chaos

import (
	"slices"
	"strings"
	"testing"

	"github.com/plx-run/plx/internal/test/chaos/ledger"
)

// world is a simulated job. It satisfies the audit until a test spoils it.
type world struct {
	account
	told map[key]int // steps made
}

func newWorld(mode string) *world {
	w := &world{account{story: tell(nil), mode: mode, applied: ledger.Applied{}}, map[key]int{}}
	for _, name := range counters {
		w.applied[name] = make([]float64, ledger.Rows)
	}
	return w
}

// generation simulates a generation in which each worker makes steps from its
// own first step up to until. The steps before the worker's cut are effective;
// a nil cut means all.
func (w *world) generation(g int, from []int, until int, cut []int) {
	for worker, first := range from {
		w.entries = append(w.entries, ledger.Entry{Push: ledger.Push{Generation: g, Worker: worker, Step: first}, Kind: ledger.Joined, Workers: len(from)})
	}
	for step := slices.Min(from); step < until; step++ {
		var there []int
		for worker, first := range from {
			if step >= first {
				there = append(there, worker)
			}
		}
		w.step(g, step, len(from), there...)
		for _, worker := range there {
			if cut == nil || step < cut[worker] {
				w.add(ledger.Push{Generation: g, Worker: worker, Step: step}, 1)
			}
		}
	}
}

// step simulates a step of the listed workers, out of all workers.
func (w *world) step(g, step, all int, workers ...int) {
	for _, worker := range workers {
		w.begin(g, step, all, worker)
		w.entries = append(w.entries, ledger.Entry{Push: ledger.Push{Generation: g, Worker: worker, Step: step}, Kind: ledger.Made})
	}
	for _, worker := range workers {
		w.told[key{g, worker}]++
	}
}

// begin simulates a step that a worker begins, but whose outcome it never
// learns.
func (w *world) begin(g, step, all, worker int) {
	seen := make([]int, all)
	for i := range seen {
		seen[i] = w.told[key{g, i}]
	}
	w.entries = append(w.entries, ledger.Entry{Push: ledger.Push{Generation: g, Worker: worker, Step: step}, Kind: ledger.Begun, Seen: seen})
}

// add adds n to the count of a push in the named variables; without names, in
// all.
func (w *world) add(p ledger.Push, n float64, names ...string) {
	if len(names) == 0 {
		names = counters
	}
	for _, name := range names {
		w.applied[name][p.Row()] += n
	}
}

// cutOut takes entries away.
func (w *world) cutOut(match func(ledger.Entry) bool) {
	w.entries = slices.DeleteFunc(w.entries, match)
}

// wentBack returns a job in which all workers were killed after step 40. It
// resumed from a checkpoint made when the chief was at step 28.
func wentBack(mode string) *world {
	w := newWorld(mode)
	cut := []int{28, 30, 27}
	w.generation(0, []int{0, 0, 0}, 40, cut)
	w.generation(1, cut, ledger.Steps, nil)
	w.resumed = [][2]int{{28, 0}}
	w.story.told[1] = loss{behind: 28, chief: 12}
	return w
}

// wentOn returns a job that lost worker 1 in the worker's step 40 and
// continued without it.
func wentOn(mode string) *world {
	w := newWorld(mode)
	w.lost[0] = []int{1}
	w.generation(0, []int{0, 0, 0}, 40, nil)
	w.begin(0, 40, 3, 1)
	w.add(ledger.Push{Worker: 1, Step: 40}, 1, "left")
	for step := 40; step < ledger.Steps; step++ {
		w.step(0, step, 3, 0, 2)
		w.add(ledger.Push{Step: step}, 1)
		w.add(ledger.Push{Worker: 2, Step: step}, 1)
	}
	return w
}

// fewer returns a job that lost a host after step 40 and resumed with two
// workers. Both began at the chief's step of the checkpoint.
func fewer(mode string) *world {
	w := newWorld(mode)
	w.generation(0, []int{0, 0, 0}, 40, []int{28, 30, 27})
	w.generation(1, []int{28, 28}, ledger.Steps, nil)
	w.resumed = [][2]int{{28, 0}}
	w.story.told[1] = loss{behind: 28, chief: 12}
	return w
}

// more returns a job that plx scaled from two to three workers when the chief
// was at step 28.
func more(mode string) *world {
	w := newWorld(mode)
	w.generation(0, []int{0, 0}, 28, nil)
	w.generation(1, []int{28, 28, 28}, ledger.Steps, nil)
	w.held[0] = true
	w.resumed = [][2]int{{28, 0}}
	return w
}

// thrice returns a job that resumed twice from a checkpoint: after the chief's
// step 28, and from step 60 after step 49. The generation between the two made
// no effective step.
func thrice(mode string) *world {
	w := newWorld(mode)
	first, second := []int{28, 29, 27}, []int{49, 50, 51}
	w.generation(0, []int{0, 0, 0}, 40, first)
	w.generation(1, first, 30, first)
	w.generation(2, first, 60, second)
	w.generation(3, second, ledger.Steps, nil)
	w.resumed = [][2]int{{28, 0}, {28, 0}, {49, 2}}
	w.story.told[1] = loss{behind: 28, chief: 12}
	w.story.told[2] = loss{behind: 28, chief: 2}
	w.story.told[3] = loss{behind: 49, chief: 11}
	return w
}

// older returns a job that resumed with two workers from a checkpoint of its
// first generation, then from one of the second. After that one was lost, it
// resumed with three workers from the first again.
func older(mode string) *world {
	w := newWorld(mode)
	first, second := []int{28, 29, 27}, []int{35, 34}
	w.generation(0, []int{0, 0, 0}, 40, first)
	w.generation(1, []int{28, 28}, 38, []int{0, 0})
	w.generation(2, second, 50, second)
	w.generation(3, first, ledger.Steps, nil)
	w.resumed = [][2]int{{28, 0}, {35, 1}, {28, 0}}
	w.story.told[1] = loss{28, 12}
	w.story.told[2] = loss{35, 3}
	w.story.told[3] = loss{28, 7 + 15}
	return w
}

// newer returns a job that resumed from an older checkpoint because a host was
// lost, and then, with the host back, from a newer one.
func newer(mode string) *world {
	w := newWorld(mode)
	old, young := []int{21, 22, 21}, []int{28, 29, 27}
	w.generation(0, []int{0, 0, 0}, 40, young)
	w.generation(1, old, 24, old)
	w.generation(2, young, ledger.Steps, nil)
	w.resumed = [][2]int{{21, 0}, {28, 0}}
	w.story.told[1] = loss{21, 19}
	w.story.told[2] = loss{28, 3}
	return w
}

// between returns a job that resumed with two workers, without effective
// steps, and then with three.
func between(mode string) *world {
	w := newWorld(mode)
	cut := []int{28, 30, 27}
	w.generation(0, []int{0, 0, 0}, 40, cut)
	w.generation(1, []int{28, 28}, 31, []int{0, 0})
	w.generation(2, cut, ledger.Steps, nil)
	w.resumed = [][2]int{{28, 0}, {28, 0}}
	w.story.told[1] = loss{28, 12}
	w.story.told[2] = loss{28, 3}
	return w
}

// spoiled is a simulated job with an error that the audit must find, or
// without one.
type spoiled struct {
	world func(mode string) *world
	spoil func(*world)
	want  string // "": all is well
}

func (s spoiled) try(t *testing.T, name string, modes ...string) {
	t.Helper()
	for _, mode := range modes {
		w := s.world(mode)
		s.spoil(w)
		err := w.audit()
		if s.want == "" && err != nil || s.want != "" && (err == nil || !strings.Contains(err.Error(), s.want)) {
			t.Errorf("%s, %s: %v, want %q", mode, name, err, s.want)
		}
	}
}
