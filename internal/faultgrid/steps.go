package main

import (
	"errors"
	"fmt"

	"github.com/plx-run/plx/internal/faultgrid/ledger"
)

// complete fails for a worker that was there at the end and has not made all
// steps, and for one that has more than one step of which it was told nothing.
func (a *account) complete(k key, b *book) error {
	if b.open() > 1 {
		return fmt.Errorf("worker:%d in generation %d: %d steps are begun and not ended", k.worker, k.generation, b.open())
	}
	if k.generation < a.last || a.without(k) || a.mode == "backup" {
		return nil
	}
	if want := max(ledger.Steps-b.from, 0); len(b.made) != want {
		return fmt.Errorf("worker:%d in generation %d: %d steps made, want %d", k.worker, k.generation, len(b.made), want)
	}
	return nil
}

// quorums fails where in backup a step was not made by as many workers as it
// takes. The last step of a worker that was lost may lack its gradient.
func (a *account) quorums(name string, g int) error {
	later, effective := a.next[g]
	end := ledger.Steps
	if effective {
		end, _ = a.cut(key{g, 0}, later)
	}
	if a.mode != "backup" || g < a.last && !effective {
		return nil
	}
	want := a.workers[g] - spares
	var errs []error
	for step := a.books[key{g, 0}].from; step < end; step++ {
		n, lacking := 0, 0
		for w := range a.workers[g] {
			k := key{g, w}
			if a.count(name, k, step) > 0 {
				n++
			} else if a.excused(k, step) {
				lacking++
			}
		}
		if n > want || n+lacking < want {
			errs = append(errs, fmt.Errorf("%s: generation %d, step %d has the gradients of %d workers, want %d", name, g, step, n, want))
		}
	}
	return errors.Join(errs...)
}

// within fails in ssp for a checkpoint that has of a worker more or fewer steps
// than it can have come to while the chief came to its own.
func (a *account) within(k key, b *book) error {
	later, effective := a.next[k.generation]
	if a.mode != "ssp" || !effective {
		return nil
	}
	chief, _ := a.cut(key{k.generation, 0}, later)
	end := 0
	for _, name := range counters {
		end = max(end, a.end(name, k, b))
	}
	if end < min(chief-bound, b.from+len(b.made)) || end > chief+bound+1 {
		return fmt.Errorf("worker:%d in generation %d: the checkpoint has its steps before %d, and the chief's before %d", k.worker, k.generation, end, chief)
	}
	return nil
}
