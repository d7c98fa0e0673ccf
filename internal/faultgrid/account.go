package main

import (
	"errors"
	"fmt"
	"math"
	"path/filepath"
	"strconv"

	"github.com/plx-run/plx/internal/faultgrid/ledger"
)

// account is what was noted and counted of a job whose workers do not wait for
// each other: the oracle in place of the weights' bits.
//
// A push that a worker was told of is applied to every variable exactly once. Of
// a worker that the job went on without, one more may be: in some variables and
// not in others. No worker has a second that it was not told of. Where the job
// went back to a checkpoint, those of the chief are in effect which lie before
// it, and no other; every other worker's up to one of them, which in ssp is no
// further from the chief's than the bound allows.
type account struct {
	mode    string
	entries []ledger.Entry
	applied ledger.Applied
	lost    []int // workers that the last generation went on without

	books map[key]*book
	last  int         // generation
	ends  map[int]int // of a generation: the step of the chief's with which what is in effect ends
}

type key struct{ generation, worker int }

// book is what one worker noted in one generation.
type book struct {
	from              int
	begun, made, late map[int]bool
}

func (b *book) open() (n int) {
	for step := range b.begun {
		if !b.made[step] && !b.late[step] {
			n++
		}
	}
	return n
}

// sort puts entries into books and finds out what is in effect of each
// generation.
func (a *account) sort() error {
	a.books, a.ends = map[key]*book{}, map[int]int{}
	var errs []error
	for _, e := range a.entries {
		k := key{e.Generation, e.Worker}
		b := a.books[k]
		if b == nil {
			b = &book{begun: map[int]bool{}, made: map[int]bool{}, late: map[int]bool{}}
			a.books[k] = b
		}
		a.last = max(a.last, e.Generation)
		kinds := map[ledger.Kind]map[int]bool{ledger.Begun: b.begun, ledger.Made: b.made, ledger.Late: b.late}
		switch of := kinds[e.Kind]; {
		case e.Kind == ledger.Joined:
			b.from = e.Step
		case of == nil || of[e.Step] || e.Kind != ledger.Begun && !b.begun[e.Step]:
			errs = append(errs, fmt.Errorf("worker:%d in generation %d: step %d is %s out of turn", e.Worker, e.Generation, e.Step, e.Kind))
		default:
			of[e.Step] = true
		}
	}
	end := math.MaxInt
	for g := a.last; g >= 0; g-- {
		a.ends[g] = end
		if b := a.books[key{g, 0}]; b != nil {
			end = min(end, b.from)
		}
	}
	return errors.Join(errs...)
}

// count is how often a variable says that a push was applied.
func (a *account) count(name string, k key, step int) float64 {
	return a.applied[name][ledger.Push{Generation: k.generation, Worker: k.worker, Step: step}.Row()]
}

// lostWorkers are those that the last generation went on without, as plx says.
func lostWorkers(lines []line) (lost []int) {
	for _, l := range lines {
		if !own(l.text) {
			continue
		}
		if anewLine.MatchString(l.text) {
			lost = nil
		}
		if found := withoutLine.FindStringSubmatch(l.text); found != nil {
			for _, task := range taskName.FindAllStringSubmatch(found[1]+found[2], -1) {
				worker, err := strconv.Atoi(task[1])
				if err == nil { // digits that are no number are no worker's
					lost = append(lost, worker)
				}
			}
		}
	}
	return lost
}

// audited reads what a job has left on its hosts, and audits it.
func (r *run) audited(lines []line) error {
	if !r.cell.loose() {
		return nil
	}
	a := account{mode: r.cell.Arch, lost: lostWorkers(lines)}
	var errs []error
	for _, h := range r.cluster.Hosts {
		folders, err := filepath.Glob(filepath.Join(h.HomeDir, ".plx", "ckpt", "*", ledgers))
		errs = append(errs, err)
		for _, folder := range folders {
			entries, err := ledger.Read(folder)
			a.entries, errs = append(a.entries, entries...), append(errs, err)
			applied, err := ledger.ReadApplied(folder)
			if errs = append(errs, err); applied != nil {
				a.applied = applied
			}
		}
	}
	if err := errors.Join(errs...); err != nil {
		return err
	}
	return a.audit()
}
