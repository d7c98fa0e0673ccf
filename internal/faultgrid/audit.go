package main

import (
	"errors"
	"fmt"
	"slices"

	"github.com/plx-run/plx/internal/faultgrid/ledger"
)

// What the audit wants. A generation is in effect when the last one has come
// from its checkpoint, or from that of one which has.
//
//   - In the last generation every push that its worker was told of is in every
//     variable once. Of a worker that the job went on without, one more may be: in
//     some variables and not in others.
//   - A checkpoint is one cut. In async and ssp it has of every worker all pushes
//     before some step, in every variable, and none behind it, whether the worker
//     was told of the last one or not. As many workers go on from it each with
//     that step, so that over all generations each push is made once. Another
//     number of workers goes on with the chief's.
//   - In backup it has all steps before one, the same for all workers, and each of
//     them has the gradients of as many workers as it takes.
//   - Of a generation that was held for plx scale all that workers were told of is
//     in effect; of one that is not in effect, nothing.
//   - What plx says was lost is what was (loss.go), and nobody is staler than the
//     mode allows (stale.go).

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
	errs := []error{a.strangers()}
	for _, k := range a.keys() {
		b := a.books[k]
		for _, name := range counters {
			errs = append(errs, a.examine(name, k, b))
		}
		errs = append(errs, a.torn(k), a.saved(k, b), a.complete(k, b), a.within(k, b))
	}
	for g := range a.last + 1 {
		for _, name := range counters {
			errs = append(errs, a.quorums(name, g))
		}
	}
	return errors.Join(append(errs, a.stale(), a.losses())...)
}

// examine compares a worker's book with what one variable has counted.
func (a *account) examine(name string, k key, b *book) error {
	later, effective := a.next[k.generation]
	switch {
	case k.generation == a.last:
		return a.present(name, k, b)
	case !effective:
		return a.exactly(name, k, b.from)
	case a.mode == "backup":
		return a.shared(name, k, b)
	}
	cut, known := a.cut(k, later)
	if !known {
		cut = a.end(name, k, b)
	}
	return a.exactly(name, k, cut)
}

// present is for the last generation.
func (a *account) present(name string, k key, b *book) error {
	var errs []error
	for step := range b.begun {
		switch n := a.count(name, k, step); {
		case n != 0 && n != 1:
			errs = append(errs, a.wrong(name, k, step, "applied %v times", n))
		case b.made[step] && n != 1:
			errs = append(errs, a.wrong(name, k, step, "acknowledged and lost"))
		case b.late[step] && n != 0:
			errs = append(errs, a.wrong(name, k, step, "said to be late, and applied"))
		case b.untold(step) && !a.without(k):
			errs = append(errs, a.wrong(name, k, step, "begun, and its worker was told nothing"))
		}
	}
	return errors.Join(errs...)
}

// exactly wants in a generation before the last all pushes of a worker before a
// step, and nothing behind it.
func (a *account) exactly(name string, k key, cut int) error {
	var errs []error
	for step := range ledger.Steps {
		want := 0.0
		if step >= a.books[k].from && step < cut {
			want = 1
		}
		if n := a.count(name, k, step); n != want && (n != 0 || !a.excused(k, step)) {
			errs = append(errs, a.wrong(name, k, step, "applied %v times, want %v: the next generation goes on behind step %d", n, want, cut))
		}
	}
	return errors.Join(errs...)
}

// end is the step behind which a variable has nothing of a worker.
func (a *account) end(name string, k key, b *book) int {
	for step := ledger.Steps; step > b.from; step-- {
		if a.count(name, k, step-1) != 0 {
			return step
		}
	}
	return b.from
}

// shared is for backup, in a generation before the last: before the step of the
// checkpoint what was made is there, and nothing behind it.
func (a *account) shared(name string, k key, b *book) error {
	cut, _ := a.cut(k, a.next[k.generation])
	var errs []error
	for step := range ledger.Steps {
		n := a.count(name, k, step)
		most, least := 0.0, 0.0
		if step < cut && !b.late[step] {
			most = 1
		}
		if step < cut && b.made[step] {
			least = 1
		}
		if n != most && n != least {
			errs = append(errs, a.wrong(name, k, step, "applied %v times, want %v to %v: the next generation goes on behind step %d", n, least, most, cut))
		}
	}
	return errors.Join(errs...)
}

// torn fails for a push that is in one variable and not in another.
func (a *account) torn(k key) error {
	var errs []error
	for step := range ledger.Steps {
		for _, name := range counters[1:] {
			if one, other := a.count(counters[0], k, step), a.count(name, k, step); one != other && !a.excused(k, step) {
				errs = append(errs, a.wrong(name, k, step, "applied %v times, and in %s %v times", other, counters[0], one))
			}
		}
	}
	return errors.Join(errs...)
}

// saved fails for what a worker was told of and has lost, though its generation
// was held for plx scale.
func (a *account) saved(k key, b *book) error {
	if !a.held[k.generation] {
		return nil
	}
	var errs []error
	for step := range b.made {
		for _, name := range counters {
			if a.count(name, k, step) == 0 {
				errs = append(errs, a.wrong(name, k, step, "acknowledged before plx scale held the job, and lost"))
			}
		}
	}
	return errors.Join(errs...)
}

// strangers fails for what was applied and nobody began.
func (a *account) strangers() error {
	var errs []error
	for _, name := range counters {
		for g := range ledger.Generations {
			for w := range ledger.Workers {
				k := key{g, w}
				for step := range ledger.Steps {
					if b := a.books[k]; a.count(name, k, step) != 0 && (b == nil || !b.begun[step]) {
						errs = append(errs, a.wrong(name, k, step, "applied, and was never begun"))
					}
				}
			}
		}
	}
	return errors.Join(errs...)
}

// without says that the job went on without a worker.
func (a *account) without(k key) bool { return slices.Contains(a.lost[k.generation], k.worker) }

// excused says that a push may be in some variables and not in others: the last
// of a worker that the job went on without.
func (a *account) excused(k key, step int) bool { return a.without(k) && a.books[k].untold(step) }

func (a *account) wrong(name string, k key, step int, format string, args ...any) error {
	return fmt.Errorf("%s: generation %d, worker:%d, step %d: %s", name, k.generation, k.worker, step, fmt.Sprintf(format, args...))
}
