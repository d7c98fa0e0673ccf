package chaos

import (
	"errors"
	"fmt"
	"math"
	"slices"

	"github.com/plx-run/plx/internal/test/chaos/ledger"
)

// account is what workers noted and variables counted in a job whose workers do not
// wait for each other: the oracle in place of the weights' bits.
//
// A generation is in effect if the last one resumed from its checkpoint, or from
// the checkpoint of a generation in effect. The audit wants this:
//
//   - bounds says for each push how often each variable must have applied it. All
//     variables agree, except about the last push of a worker that the job went on
//     without (torn).
//   - A checkpoint is one cut. In async and ssp it has of each worker all pushes
//     before one step and none after it, whether the worker was told of the last one
//     or not. As many workers resume, each after its own step: over all generations
//     each push is made once. Another number of workers resumes after the chief's.
//   - In backup the cut is before one step for all workers, and each step before it
//     has the gradients of as many workers as it takes (quorums).
//   - plx names the step after which a generation resumes and counts no step as lost
//     that was not (losses), every worker makes all its steps (complete), and nobody
//     is staler than the mode allows (stale, within).
type account struct {
	story
	mode    string         // "async", "ssp" or "backup"
	entries []ledger.Entry // what all workers noted
	applied ledger.Applied // how often each counting variable applied each push

	books   map[key]*book // what each worker noted, by generation and worker
	last    int           // number of the last generation
	workers map[int]int   // number of workers, by generation
	origin  map[int]int   // by generation: the generation whose checkpoint it resumed from; -1: none known
	next    map[int]int   // by generation in effect: the generation that resumed from its checkpoint
}

// How many steps workers may be apart in ssp, and how many workers nobody waits
// for in backup.
const (
	bound  = 2
	spares = 1
)

// counters are the variables that count.
var counters = []string{"left", "right", "table"}

// audit says what is wrong.
func (a *account) audit() error {
	for _, name := range counters {
		if len(a.applied[name]) != ledger.Rows {
			return fmt.Errorf("nobody has noted what is in %q", name)
		}
	}
	if err := errors.Join(a.sort(), a.trace()); err != nil {
		return err // what follows needs both
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

// cut is the step of a worker from which on the checkpoint of its generation has
// nothing of it; generation later resumed from it. It follows from the chief's book, or from the worker's if it resumed after
// its own step; else from what a variable has.
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

// end is the step from which on a variable has nothing of a worker.
func (a *account) end(name string, k key) int {
	for step := ledger.Steps; step > a.books[k].from; step-- {
		if a.count(name, k, step-1) != 0 {
			return step
		}
	}
	return a.books[k].from
}

// bounds are how often a variable must have applied a push: at least and at most so
// many times. If least is more than most, every count is wrong.
func (a *account) bounds(k key, step, cut int) (least, most float64) {
	b := a.books[k]
	_, effective := a.next[k.generation]
	last := k.generation == a.last
	switch {
	case b == nil || b.late[step] || !last && (!effective || step < b.from || step >= cut):
	case b.made[step]:
		least, most = 1, 1
	case !b.begun[step] && !last && a.mode != "backup": // the next generation skips it
		least = 1
	case b.begun[step]: // its worker was told nothing
		most = 1
		if !last && a.mode != "backup" && !a.excused(k, step) {
			least = 1
		}
	}
	if b != nil && a.held[k.generation] && b.made[step] { // plx scale loses nothing
		least = 1
	}
	return least, most
}

// examine compares a worker's book with what the variables have counted.
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

// count is how often a variable has applied a push.
func (a *account) count(name string, k key, step int) float64 {
	return a.applied[name][ledger.Push{Generation: k.generation, Worker: k.worker, Step: step}.Row()]
}

// without reports whether the job went on without a worker.
func (a *account) without(k key) bool { return slices.Contains(a.lost[k.generation], k.worker) }

// excused reports whether a push may be in some variables and not in others: the
// last of a worker that the job went on without.
func (a *account) excused(k key, step int) bool {
	return a.without(k) && a.books[k] != nil && a.books[k].untold(step)
}

// complete fails for a worker of the last generation that has not made all steps,
// and for any with more open steps than one, which it may have if its generation
// ended or the job went on without it.
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

// quorums fails if in backup not as many workers made a step as it takes. The
// gradient of the last step of a lost worker may be missing.
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

// within fails in ssp for a checkpoint that has of a worker more or fewer steps
// than it can have made while the chief came to its own.
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

// stale fails if a worker did not see its own steps; in ssp if it did not see all
// steps of another that lie more than the bound before its own; in backup if a
// gradient that counts was not computed from exactly the steps before.
func (a *account) stale() error {
	var errs []error
	made := map[key]int{} // so far
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

// visible is how many steps of a worker another has seen, at least and at most, when
// it began one of its own. In ssp a worker that a checkpoint has too far ahead waits
// in its first step, after it has noted what it sees.
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
