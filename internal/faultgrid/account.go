package main

import (
	"cmp"
	"errors"
	"fmt"
	"maps"
	"path/filepath"
	"slices"

	"github.com/plx-run/plx/internal/faultgrid/ledger"
)

// account is what was noted and counted of a job whose workers do not wait for
// each other: the oracle in place of the weights' bits. What it wants is in
// audit.go.
type account struct {
	story
	mode    string
	entries []ledger.Entry
	applied ledger.Applied

	books   map[key]*book
	last    int         // generation
	workers map[int]int // that a generation has
	origin  map[int]int // of a generation: that which made the checkpoint it goes on from; -1: it begins anew
	next    map[int]int // of one that is in effect: that which goes on from its checkpoint
}

type key struct{ generation, worker int }

// book is what one worker noted in one generation.
type book struct {
	from, next        int // the first step, and the one behind the last that was begun
	begun, made, late map[int]bool
}

func (b *book) open() (n int) {
	for step := range b.begun {
		if b.untold(step) {
			n++
		}
	}
	return n
}

// untold says that a step was begun, and that its worker was told nothing.
func (b *book) untold(step int) bool { return b.begun[step] && !b.made[step] && !b.late[step] }

// keys are those of all books, in order.
func (a *account) keys() []key {
	return slices.SortedFunc(maps.Keys(a.books), func(x, y key) int {
		return cmp.Or(cmp.Compare(x.generation, y.generation), cmp.Compare(x.worker, y.worker))
	})
}

// sort puts entries into books.
func (a *account) sort() error {
	a.books, a.workers, a.last = map[key]*book{}, map[int]int{}, 0
	var errs []error
	for _, e := range a.entries {
		a.last = max(a.last, e.Generation)
		if !a.take(e) {
			errs = append(errs, fmt.Errorf("worker:%d in generation %d: step %d is %s out of turn", e.Worker, e.Generation, e.Step, e.Kind))
		}
	}
	return errors.Join(errs...)
}

// take puts an entry into its book, and reports whether it may come there. Only
// in backup there are steps that a worker skips, or comes too late for.
func (a *account) take(e ledger.Entry) bool {
	k := key{e.Generation, e.Worker}
	b := a.books[k]
	switch {
	case e.Kind == ledger.Joined && b == nil:
		a.books[k] = &book{from: e.Step, next: e.Step, begun: map[int]bool{}, made: map[int]bool{}, late: map[int]bool{}}
		known := a.workers[e.Generation]
		a.workers[e.Generation] = e.Workers
		return known == 0 || known == e.Workers
	case b == nil:
		return false
	case e.Kind == ledger.Begun && (e.Step == b.next || a.mode == "backup" && e.Step > b.next):
		b.begun[e.Step], b.next = true, e.Step+1
		return len(e.Seen) == a.workers[e.Generation]
	case e.Kind == ledger.Made && b.untold(e.Step):
		b.made[e.Step] = true
	case e.Kind == ledger.Late && b.untold(e.Step) && a.mode == "backup":
		b.late[e.Step] = true
	default:
		return false
	}
	return true
}

// count is how often a variable says that a push was applied.
func (a *account) count(name string, k key, step int) float64 {
	return a.applied[name][ledger.Push{Generation: k.generation, Worker: k.worker, Step: step}.Row()]
}

// audited reads what a job has left on its hosts, and audits it.
func (r *run) audited(lines []line) error {
	if !r.cell.loose() {
		return nil
	}
	a := account{mode: r.cell.Arch, story: tell(lines)}
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
