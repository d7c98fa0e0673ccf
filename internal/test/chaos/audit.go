package chaos

import (
	"errors"
	"fmt"
	"math"
	"slices"

	"github.com/plx-run/plx/internal/test/chaos/ledger"
)

// account checks a job whose workers do not wait for each other. The weights
// of such a job are not reproducible, so account compares two records instead:
// the steps that each worker wrote to its ledger, and how often the model's
// counting variables applied each gradient push.
//
// A generation is effective if it is the last one, or if an effective
// generation resumed from its checkpoint. The audit checks these rules:
//
//   - bounds computes, for each push, how often each variable must have applied it.
//     All variables must agree, except about the last push of a worker that the job
//     lost and continued without (excused).
//   - A checkpoint is a consistent cut. In the modes async and ssp, it contains for
//     each worker exactly the pushes before one step. If the same number of workers
//     resumes, each resumes after its own step, so that each push is made once over
//     all generations. A different number of workers resumes after the chief's step.
//   - In backup mode, the cut is before the same step for all workers. Each earlier
//     step has the gradients of the required number of workers (quorums).
//   - plx reports the step after which a generation resumes, and counts only lost
//     steps as lost (losses). Every worker makes all its steps (complete), and no
//     worker reads values that are staler than the mode allows (stale, within).
type account struct {
	story
	mode    string         // "async", "ssp" or "backup"
	entries []ledger.Entry // ledger entries of all workers
	applied ledger.Applied // for each counting variable, how often it applied each push

	books   map[key]*book // ledger of each worker in each generation
	last    int           // number of the last generation
	workers map[int]int   // number of workers, by generation
	origin  map[int]int   // for each generation, the generation whose checkpoint it resumed from; -1 if unknown or none
	next    map[int]int   // for each effective generation except the last, the generation that resumed from its checkpoint
}

// bound is the maximum staleness in ssp mode, in steps. spares is the number
// of backup workers in backup mode: a step waits for all workers but this
// many.
const (
	bound  = 2
	spares = 1
)

// counters are the names of the variables that count pushes.
var counters = []string{"left", "right", "table"}

// audit returns all violations of the rules, as one error.
func (a *account) audit() error {
	for _, name := range counters {
		if len(a.applied[name]) != ledger.Rows {
			return fmt.Errorf("nobody has noted what is in %q", name)
		}
	}
	if err := errors.Join(a.sort(), a.trace()); err != nil {
		return err // the other checks need the results of sort and trace
	}
	var errs []error
	for g := range ledger.Generations {
		for w := range ledger.Workers {
			errs = append(errs, a.examine(key{g, w}))
		}
		errs = append(errs, a.quorums(g))
	}
	for _, k := range a.keys() {
		errs = append(errs, a.complete(k, a.books[k]), a.within(k, a.books[k]))
	}
	return errors.Join(append(errs, a.stale(), a.losses())...)
}

// cut returns the first step of worker k that a checkpoint does not contain:
// the checkpoint of the worker's generation, from which generation later
// resumed. It is the step at which the chief resumed, or the worker itself if
// each worker resumed after its own step. If there is no such ledger, cut
// derives it from what the variable has counted.
func (a *account) cut(name string, k key, later int) int {
	apart := a.apart(later)
	if k.worker != 0 && a.mode != "backup" && !apart {
		return a.end(name, k)
	}
	if !apart {
		k.worker = 0
	}
	if b := a.books[key{later, k.worker}]; b != nil {
		return b.from
	}
	return a.end(name, k)
}

// end returns the first step of a worker from which on the variable has
// applied none of its pushes.
func (a *account) end(name string, k key) int {
	for step := ledger.Steps; step > a.books[k].from; step-- {
		if a.count(name, k, step-1) != 0 {
			return step
		}
	}
	return a.books[k].from
}

// bounds returns the smallest and the largest number of times that a variable
// may have applied a push. If least is greater than most, any number is an
// error.
func (a *account) bounds(k key, step, cut int) (least, most float64) {
	b := a.books[k]
	_, effective := a.next[k.generation]
	last := k.generation == a.last
	switch {
	case b == nil || b.late[step] || !last && (!effective || step < b.from || step >= cut):
	case b.made[step]:
		least, most = 1, 1
	// The worker did not begin this step: the checkpoint already contains it,
	// and the next generation skips it.
	case !b.begun[step] && !last && a.mode != "backup":
		least = 1
	case b.begun[step]: // the step's outcome was never reported to the worker
		most = 1
		if !last && a.mode != "backup" && !a.excused(k, step) {
			least = 1
		}
	}
	if b != nil && a.held[k.generation] && b.made[step] { // plx scale must not lose pushes
		least = 1
	}
	return least, most
}

// examine compares a worker's ledger with the pushes that the variables have
// counted.
func (a *account) examine(k key) error {
	var errs []error
	wrong := func(name string, step int, format string, args ...any) {
		errs = append(errs, fmt.Errorf("%s: generation %d, worker:%d, step %d: %s", name, k.generation, k.worker, step, fmt.Sprintf(format, args...)))
	}
	later, effective := a.next[k.generation]
	for _, name := range counters {
		cut := 0
		if effective && a.books[k] != nil {
			cut = a.cut(name, k, later)
		}
		for step := range ledger.Steps {
			n := a.count(name, k, step)
			if least, most := a.bounds(k, step, cut); n < least || n > most || n != math.Trunc(n) {
				wrong(name, step, "applied %v times, want %v to %v; its checkpoint is a cut before step %d, 0 means none", n, least, most, cut)
			}
			if one := a.count(counters[0], k, step); one != n && !a.excused(k, step) {
				wrong(name, step, "applied %v times, and in %s %v times", n, counters[0], one)
			}
		}
	}
	return errors.Join(errs...)
}

// count returns how often a variable has applied a push.
func (a *account) count(name string, k key, step int) float64 {
	return a.applied[name][ledger.Push{Generation: k.generation, Worker: k.worker, Step: step}.Row()]
}

// without reports whether the job continued without worker k after it was
// lost.
func (a *account) without(k key) bool { return slices.Contains(a.lost[k.generation], k.worker) }

// excused reports whether some variables may have applied the push and others
// not. This is allowed for the last push of a worker that the job continued
// without.
func (a *account) excused(k key, step int) bool {
	return a.without(k) && a.books[k] != nil && a.books[k].untold(step)
}

// complete returns an error if a worker of the last generation has not made
// all its steps. It also returns an error if a worker has more than one
// unfinished step; one is allowed if its generation ended or the job continued
// without it.
func (a *account) complete(k key, b *book) error {
	ended := k.generation < a.last || a.without(k)
	if n := b.open(); n > 1 || n > 0 && !ended {
		return fmt.Errorf("worker:%d in generation %d: %d steps are begun and not ended", k.worker, k.generation, n)
	}
	if want := max(ledger.Steps-b.from, 0); !ended && a.mode != "backup" && len(b.made) != want {
		return fmt.Errorf("worker:%d in generation %d: %d steps made, want %d", k.worker, k.generation, len(b.made), want)
	}
	return nil
}

// quorums returns an error if, in backup mode, a step has the gradients of too
// few or too many workers. The gradient of a lost worker's last step may be
// missing.
func (a *account) quorums(g int) error {
	later, effective := a.next[g]
	if a.mode != "backup" || g > a.last || g < a.last && !effective {
		return nil
	}
	want, end := a.workers[g]-spares, ledger.Steps
	if effective {
		end = a.cut(counters[0], key{g, 0}, later)
	}
	var errs []error
	for _, name := range counters {
		for step := a.books[key{g, 0}].from; step < end; step++ {
			n, lacking := 0, 0
			for w := range a.workers[g] {
				if k := (key{g, w}); a.count(name, k, step) > 0 {
					n++
				} else if a.excused(k, step) {
					lacking++
				}
			}
			if n > want || n+lacking < want {
				errs = append(errs, fmt.Errorf("%s: generation %d, step %d has the gradients of %d workers, want %d", name, g, step, n, want))
			}
		}
	}
	return errors.Join(errs...)
}

// within returns an error if, in ssp mode, the number of a worker's steps in a
// checkpoint differs from the chief's by more than the staleness bound allows.
func (a *account) within(k key, b *book) error {
	later, effective := a.next[k.generation]
	if a.mode != "ssp" || !effective {
		return nil
	}
	chief, end := a.cut(counters[0], key{k.generation, 0}, later), 0
	for _, name := range counters {
		end = max(end, a.end(name, k))
	}
	if end < min(chief-bound, b.from+len(b.made)) || end > chief+bound+1 {
		return fmt.Errorf("worker:%d in generation %d: the checkpoint has its steps before %d, and the chief's before %d", k.worker, k.generation, end, chief)
	}
	return nil
}

// stale returns an error if a worker computed a gradient from values that it
// must not have seen. A worker must see all its own steps. In ssp mode it must
// see all steps of others that are older than the bound. In backup mode, a
// gradient that counts must be computed from exactly the earlier steps.
func (a *account) stale() error {
	var errs []error
	made := map[key]int{} // number of steps that each worker has made so far
	for _, e := range a.entries {
		k := key{e.Generation, e.Worker}
		if e.Kind == ledger.Made {
			made[k]++
		}
		if e.Kind != ledger.Begun {
			continue
		}
		for other, n := range e.Seen {
			least, most := a.visible(key{e.Generation, other}, e)
			if other == e.Worker {
				least, most = made[k], made[k]
			}
			if n < least || n > most {
				errs = append(errs, fmt.Errorf("worker:%d in generation %d saw %d steps of worker:%d before its own step %d, want %d to %d", e.Worker, e.Generation, n, other, e.Step, least, most))
			}
		}
	}
	return errors.Join(errs...)
}

// visible returns the smallest and the largest number of steps of worker k
// that another worker may have seen when it began the step of entry e. The
// first step after a resumption is exempt in ssp mode: a worker may have to
// wait in that step, after it has recorded what it sees.
func (a *account) visible(k key, e ledger.Entry) (least, most int) {
	b, own := a.books[k], a.books[key{e.Generation, e.Worker}]
	most = ledger.Steps
	switch {
	case b == nil:
	case a.mode == "ssp" && e.Step != own.from:
		least = min(e.Step-bound-b.from, len(b.made))
	case a.mode == "backup" && own.made[e.Step]:
		most = 0
		for step := range b.begun {
			if step < e.Step && b.made[step] {
				least++
			}
			if step < e.Step && !b.late[step] {
				most++
			}
		}
	}
	return least, most
}
