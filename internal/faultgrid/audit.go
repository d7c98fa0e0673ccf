package main

import (
	"errors"
	"fmt"
	"slices"

	"github.com/plx-run/plx/internal/faultgrid/ledger"
)

// counters are the variables that count.
var counters = []string{"left", "right", "table"}

// audit says what is wrong.
func (a *account) audit() error {
	errs := []error{a.sort()}
	for _, name := range counters {
		if len(a.applied[name]) != ledger.Rows {
			return errors.Join(append(errs, fmt.Errorf("nobody has noted what is in %q", name))...)
		}
		for k, b := range a.books {
			errs = append(errs, a.examine(name, k, b))
		}
		errs = append(errs, a.strangers(name), a.quorums(name))
	}
	for k, b := range a.books {
		errs = append(errs, a.complete(k, b))
	}
	return errors.Join(append(errs, a.stale())...)
}

// examine compares a worker's book with what one variable has counted.
func (a *account) examine(name string, k key, b *book) error {
	if k.generation == a.last {
		return a.present(name, k, b)
	}
	return a.past(name, k, b)
}

// present is for the generation that was the last.
func (a *account) present(name string, k key, b *book) error {
	var errs []error
	for step := range b.begun {
		n, told := a.count(name, k, step), b.made[step] || b.late[step]
		switch {
		case n != 0 && n != 1:
			errs = append(errs, a.wrong(name, k, step, "applied %v times", n))
		case b.made[step] && n != 1:
			errs = append(errs, a.wrong(name, k, step, "acknowledged and lost"))
		case b.late[step] && n != 0:
			errs = append(errs, a.wrong(name, k, step, "said to be late, and applied"))
		case !told && !slices.Contains(a.lost, k.worker):
			errs = append(errs, a.wrong(name, k, step, "begun, and its worker was told nothing"))
		}
	}
	return errors.Join(errs...)
}

// past is for a generation before the last: up to some step all that was made is
// there, behind it nothing.
func (a *account) past(name string, k key, b *book) error {
	var errs []error
	end := b.from
	for step := range ledger.Steps {
		n := a.count(name, k, step)
		if n != 0 && (n != 1 || !b.begun[step] || b.late[step]) {
			errs = append(errs, a.wrong(name, k, step, "applied %v times", n))
		}
		if n != 0 {
			end = step + 1
		}
	}
	for step := range b.made {
		if step < end && a.count(name, k, step) == 0 {
			errs = append(errs, a.wrong(name, k, step, "lost, while step %d is not", end-1))
		}
	}
	switch cut := a.ends[k.generation]; {
	case cut <= b.from && end > b.from:
		errs = append(errs, a.wrong(name, k, end-1, "there, though the job went back behind step %d", cut))
	case cut <= b.from:
	case k.worker == 0:
		errs = append(errs, a.exactly(name, k, b, cut))
	case a.mode == "ssp" && (end < min(cut-bound, b.from+len(b.made)) || end > cut+bound+1):
		errs = append(errs, a.wrong(name, k, end-1, "the last that is there, %d being the chief's", cut-1))
	}
	return errors.Join(errs...)
}

// exactly is for the chief: what it made before the checkpoint is there, and
// nothing else. The checkpoint may have one more step than the chief was told of:
// it lies behind it.
func (a *account) exactly(name string, k key, b *book, cut int) error {
	var errs []error
	for step := range ledger.Steps {
		want := 0.0
		if b.begun[step] && !b.late[step] && step < cut {
			want = 1
		}
		if n := a.count(name, k, step); n != want {
			errs = append(errs, a.wrong(name, k, step, "applied %v times, want %v: the checkpoint is of step %d", n, want, cut))
		}
	}
	return errors.Join(errs...)
}

// strangers fails for what was applied and nobody began.
func (a *account) strangers(name string) error {
	var errs []error
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
	return errors.Join(errs...)
}

// complete fails for a worker that was there at the end and has not made all
// steps, and for one that has more than one step of which it was told nothing.
func (a *account) complete(k key, b *book) error {
	if b.open() > 1 {
		return fmt.Errorf("worker:%d in generation %d: %d steps are begun and not ended", k.worker, k.generation, b.open())
	}
	if k.generation < a.last || slices.Contains(a.lost, k.worker) || a.mode == "backup" {
		return nil
	}
	if want := ledger.Steps - b.from; len(b.made) != want || len(b.late) > 0 {
		return fmt.Errorf("worker:%d in generation %d: %d steps made, %d late, want %d", k.worker, k.generation, len(b.made), len(b.late), want)
	}
	return nil
}

// quorums fails where in backup a step of the last generation was not made by as
// many workers as it takes. Of a worker that was lost the last one may be in a
// variable or not.
func (a *account) quorums(name string) error {
	chief := a.books[key{a.last, 0}]
	if a.mode != "backup" || chief == nil {
		return nil
	}
	var workers []key
	for k := range a.books {
		if k.generation == a.last {
			workers = append(workers, k)
		}
	}
	want, short := max(len(workers)-spares, 1), 0
	var errs []error
	for step := chief.from; step < ledger.Steps; step++ {
		n := 0.0
		for _, k := range workers {
			n += a.count(name, k, step)
		}
		if n == float64(want-1) && short < len(a.lost) {
			short++
		} else if n != float64(want) {
			errs = append(errs, fmt.Errorf("%s: step %d has the gradients of %v workers, want %d", name, step, n, want))
		}
	}
	return errors.Join(errs...)
}

// stale fails where a worker did not see its own steps, and in ssp where it did
// not see all steps of another that lie more than the bound before its own.
func (a *account) stale() error {
	var errs []error
	made := map[key]int{} // so far
	for _, e := range a.entries {
		k := key{e.Generation, e.Worker}
		if e.Kind == ledger.Made {
			made[k]++
		}
		if e.Kind != ledger.Begun || e.Worker >= len(e.Seen) {
			continue
		}
		if e.Seen[e.Worker] != made[k] {
			errs = append(errs, fmt.Errorf("worker:%d in generation %d saw %d of its %d steps before step %d", e.Worker, e.Generation, e.Seen[e.Worker], made[k], e.Step))
		}
		for other, n := range e.Seen {
			b := a.books[key{e.Generation, other}]
			if a.mode == "ssp" && b != nil && b.from+n < min(e.Step-bound, b.from+len(b.made)) {
				errs = append(errs, fmt.Errorf("worker:%d in generation %d saw worker:%d at step %d before its own step %d", e.Worker, e.Generation, other, b.from+n, e.Step))
			}
		}
	}
	return errors.Join(errs...)
}

func (a *account) wrong(name string, k key, step int, format string, args ...any) error {
	return fmt.Errorf("%s: generation %d, worker:%d, step %d: %s", name, k.generation, k.worker, step, fmt.Sprintf(format, args...))
}
