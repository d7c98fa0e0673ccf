package chaos

import (
	"errors"
	"fmt"
	"math"
	"slices"

	"github.com/plx-run/plx/internal/test/chaos/ledger"
)

// account checks a job whose workers do not wait for each other. The weights
// of such a job are not reproducible, so account compares two records instead.
// The first record is the ledgers (logs) in which the workers wrote their
// steps. The second is how often the model's counting variables applied each
// push, which is the gradient of one worker in one step.
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
//   - plx reports the step after which a generation resumes. The steps that it
//     reports as lost must really be lost (losses).
//   - Every worker makes all its steps (complete). No worker reads values that are
//     staler than the mode allows (stale, within).
type account struct {
	story
	mode    string         // mode of the job: "async", "ssp" or "backup"
	entries []ledger.Entry // ledger entries of all workers
	applied ledger.Applied // maps each counting variable to the number of times that it applied each push

	books   map[key]*book // ledger of each worker in each generation, as sort fills it
	last    int           // number of the last generation
	workers map[int]int   // maps each generation to its number of workers
	origin  map[int]int   // maps each generation to the generation from whose checkpoint it resumed; -1 if unknown or none
	next    map[int]int   // maps each effective generation except the last to the generation that resumed from its checkpoint
}

// bound is the maximum staleness in ssp mode, in steps. spares is the number
// of backup workers in backup mode: a step needs the gradients of all workers
// except this number of the slowest.
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
		return err // the other checks need the results of sort and trace, which failed
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

// cut returns the first step of a worker that a checkpoint does not contain. k
// is the worker in the generation that wrote the checkpoint, and later the
// generation that resumed from it. The result is the step at which the chief
// resumed, or the worker itself if each worker resumed after its own step. If
// no ledger shows the step, cut derives it from what the variable has counted.
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

// end returns the first step of a worker such that the variable has applied no
// push of this worker from this step on.
func (a *account) end(name string, k key) int {
	for step := ledger.Steps; step > a.books[k].from; step-- {
		if a.count(name, k, step-1) != 0 {
			return step
		}
	}
	return a.books[k].from
}

// bounds returns the smallest and the largest number of times that a variable
// may have applied a push. If least is greater than most, every number of
// times violates a rule.
func (a *account) bounds(k key, step, cut int) (least, most float64) {
	b := a.books[k]
	_, effective := a.next[k.generation]
	last := k.generation == a.last
	switch {
	case b == nil || b.late[step] || !last && (!effective || step < b.from || step >= cut):
	case b.made[step]:
		least, most = 1, 1
	// The worker did not begin this step. The checkpoint contains the step
	// already, so the next generation skips it.
	case !b.begun[step] && !last && a.mode != "backup":
		least = 1
	case b.begun[step]: // the worker began the step and was never told its outcome
		most = 1
		if !last && a.mode != "backup" && !a.excused(k, step) {
			least = 1
		}
	}
	if b != nil && a.held[k.generation] && b.made[step] { // plx scale ended the generation at a checkpoint, and must not lose pushes
		least = 1
	}
	return least, most
}

// examine compares a worker's ledger with the numbers of times that the
// variables have applied the worker's pushes.
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

// without reports whether the job lost worker k and continued without it.
func (a *account) without(k key) bool { return slices.Contains(a.lost[k.generation], k.worker) }

// excused reports whether it is allowed that only some of the variables have
// applied the push. It is allowed for the last push of a worker that the job
// lost and continued without.
func (a *account) excused(k key, step int) bool {
	return a.without(k) && a.books[k] != nil && a.books[k].untold(step)
}

// complete returns an error if a worker of the last generation has not made
// all its steps. It also returns an error if a worker has too many unfinished
// steps. One unfinished step is allowed if the worker's generation ended or
// the job continued without the worker.
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

// quorums returns an error if, in backup mode, a variable has applied the
// gradients of too few or too many workers in a step. The gradient of a lost
// worker's last step may be missing.
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

// within returns an error if, in ssp mode, a checkpoint contains too many or
// too few steps of a worker. The number may differ from the chief's by no more
// than the staleness bound allows.
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

// stale returns an error if a worker computed a gradient from wrong values.
// The values must contain all steps of the worker itself. In ssp mode they
// must contain all steps of other workers that are older than the bound. In
// backup mode, the values for a gradient that was applied must contain exactly
// the earlier steps.
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
// that may be contained in the values from which the step of entry e was
// computed. In ssp mode, least is 0 for the first step after a resumption: a
// worker may wait in this step after it has recorded what the values contain.
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
