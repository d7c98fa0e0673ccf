package main

import (
	"errors"
	"fmt"

	"github.com/plx-run/plx/internal/faultgrid/ledger"
)

// stale fails where a worker did not see its own steps; in ssp where it did not
// see all steps of another that lie more than the bound before its own; in backup
// where what it made was not computed from exactly the steps before.
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
		if e.Seen[e.Worker] != made[k] {
			errs = append(errs, fmt.Errorf("worker:%d in generation %d saw %d of its %d steps before step %d", e.Worker, e.Generation, e.Seen[e.Worker], made[k], e.Step))
		}
		for other, n := range e.Seen {
			if least, most := a.visible(key{e.Generation, other}, e); n < least || n > most {
				errs = append(errs, fmt.Errorf("worker:%d in generation %d saw %d steps of worker:%d before its own step %d, want %d to %d", e.Worker, e.Generation, n, other, e.Step, least, most))
			}
		}
	}
	return errors.Join(errs...)
}

// visible is how many steps of a worker another has seen, at least and at most,
// when it began one of its own. In ssp one that a checkpoint has too far ahead waits
// in its first step, after it has noted what it sees.
func (a *account) visible(k key, e ledger.Entry) (least, most int) {
	b := a.books[k]
	most = ledger.Steps
	switch {
	case b == nil:
	case a.mode == "ssp" && e.Step == a.books[key{e.Generation, e.Worker}].from:
	case a.mode == "ssp":
		least = min(e.Step-bound-b.from, len(b.made))
	case a.mode == "backup" && a.books[key{e.Generation, e.Worker}].made[e.Step]:
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
