package chaos

import (
	"errors"
	"fmt"
)

// losses compares the lost steps that plx reports with the workers' ledgers.
// plx reports nothing about a generation whose chief made no step. A later
// generation that makes a step then reports these lost steps too.
func (a *account) losses() error {
	type step struct{ generation, number int }
	counted := map[step]bool{}
	var errs []error
	for g := 1; g <= a.last; g++ {
		told, said := a.told[g]
		if !said && g < a.last {
			continue
		}
		b := a.books[key{g, 0}]
		if b == nil {
			errs = append(errs, fmt.Errorf("plx says after which step generation %d resumes, whose chief has noted nothing", g))
			continue
		}
		if said && told.behind != b.from {
			errs = append(errs, fmt.Errorf("generation %d resumes after step %d, plx says %d", g, b.from, told.behind))
		}
		// lost contains the steps of the chief that are lost, and in backup
		// mode those of all workers. The value is true if the worker was told
		// that the step was made.
		lost := map[step]bool{}
		for _, k := range a.keys() {
			for n := range a.books[k].begun {
				if s := (step{k.generation, n}); k.generation < g && (k.worker == 0 || a.mode == "backup") && !counted[s] && !a.kept(g, k, n) {
					lost[s] = lost[s] || a.books[k].made[n]
				}
			}
		}
		made := 0
		for s, told := range lost {
			counted[s] = true
			if told {
				made++
			}
		}
		switch {
		case b.from == 0: // All steps are recomputed, and plx prints that the generation starts from the beginning.
		case said && told.chief > len(lost):
			errs = append(errs, fmt.Errorf("the chief lost %d steps, and %d more of which it was not told; plx says at least %d", made, len(lost)-made, told.chief))
		case !said && made > 0:
			errs = append(errs, fmt.Errorf("generation %d has lost %d steps of the chief, and nobody was told", g, made))
		}
	}
	return errors.Join(errs...)
}

// kept reports whether the push is contained in the state with which
// generation g begins.
func (a *account) kept(g int, k key, step int) bool {
	for later := g; later > k.generation; {
		made := a.origin[later]
		if made == k.generation {
			return step < a.cut(counters[0], k, later)
		}
		later = made
	}
	return false
}
