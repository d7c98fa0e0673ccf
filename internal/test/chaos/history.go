package chaos

import (
	"cmp"
	"errors"
	"fmt"
	"maps"
	"slices"

	"github.com/plx-run/plx/internal/test/chaos/ledger"
)

// story is the history of a job's generations, as plx printed it.
type story struct {
	lost    map[int][]int // maps each generation to the lost workers that the job continued without
	held    map[int]bool  // generations that plx scale ended at a checkpoint, for which all workers paused
	told    map[int]loss  // maps each generation to what plx printed about its resumption; no entry if plx printed nothing
	resumed [][2]int      // for each resumption of a chief, unordered: the step after which the chief resumed, and the generation that wrote the checkpoint
}

// tell extracts the story from the lines of a transcript.
func tell(lines []line) story {
	s := story{lost: map[int][]int{}, held: map[int]bool{}, told: map[int]loss{}}
	generation := 0
	for _, l := range lines {
		if found := originLine.FindStringSubmatch(l.text); found != nil {
			s.resumed = append(s.resumed, [2]int{number(found[1]), number(found[2])})
		}
		if !own(l.text) {
			continue
		}
		if found := startLine.FindStringSubmatch(l.text); found != nil {
			generation = number(found[1])
		}
		if found := savedLine.FindStringSubmatch(l.text); found != nil {
			s.held[number(found[1])] = true
		}
		if found := withoutLine.FindStringSubmatch(l.text); found != nil {
			for _, task := range taskName.FindAllStringSubmatch(found[1]+found[2], -1) {
				s.lost[generation] = append(s.lost[generation], number(task[1]))
			}
		}
		if g, told, ok := lossOf(l.text); ok {
			s.told[g] = told
		}
	}
	return s
}

type key struct{ generation, worker int }

// book is the ledger of one worker in one generation, indexed by step.
type book struct {
	from, next        int          // from is the first step; next is the step after the last one that was begun
	begun, made, late map[int]bool // steps that the worker began, steps whose gradient was applied, and steps whose gradient came too late to be applied
}

// untold reports whether the worker began the step and was never told its
// outcome.
func (b *book) untold(step int) bool { return b.begun[step] && !b.made[step] && !b.late[step] }

// note adds a ledger entry to the book. It returns false if the entry is not
// allowed after the entries so far. A worker may skip steps or be late for a
// step only in backup mode.
func (b *book) note(e ledger.Entry, backup bool) bool {
	switch {
	case e.Kind == ledger.Begun && (e.Step == b.next || backup && e.Step > b.next):
		b.begun[e.Step], b.next = true, e.Step+1
	case e.Kind == ledger.Made && b.untold(e.Step):
		b.made[e.Step] = true
	case e.Kind == ledger.Late && b.untold(e.Step) && backup:
		b.late[e.Step] = true
	default:
		return false
	}
	return true
}

// open counts the steps that the worker began and of whose outcome it was
// never told.
func (b *book) open() (n int) {
	for step := range b.begun {
		if b.untold(step) {
			n++
		}
	}
	return n
}

// keys returns the keys of all books, sorted by generation and worker.
func (a *account) keys() []key {
	return slices.SortedFunc(maps.Keys(a.books), func(x, y key) int {
		return cmp.Or(cmp.Compare(x.generation, y.generation), cmp.Compare(x.worker, y.worker))
	})
}

// sort distributes all ledger entries to the books of their workers.
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

// take adds an entry to its worker's book. It returns false if the entry is
// not allowed after the entries so far.
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
	}
	return b.note(e, a.mode == "backup") && (e.Kind != ledger.Begun || len(e.Seen) == a.workers[e.Generation])
}

// trace finds out from which generation's checkpoint each generation resumed.
// From this it determines which generations are effective, that is, contribute
// to the final state.
func (a *account) trace() error {
	a.origin, a.next = map[int]int{}, map[int]int{}
	var errs []error
	for g := range a.last + 1 {
		errs = append(errs, a.trail(g))
	}
	if a.books[key{a.last, 0}] == nil {
		return errors.Join(append(errs, fmt.Errorf("the chief has noted nothing in generation %d, the last", a.last))...)
	}
	for g := a.last; ; g = a.origin[g] {
		errs = append(errs, a.together(g))
		made := a.origin[g]
		if made < 0 {
			return errors.Join(append(errs, a.alike())...)
		}
		a.next[made] = g
	}
}

// trail finds the generation from whose checkpoint generation g resumed. It
// uses the first step that the chief of g recorded.
func (a *account) trail(g int) error {
	a.origin[g] = -1
	chief := a.books[key{g, 0}]
	if chief == nil || chief.from == 0 {
		return nil // the generation ended before its chief began, or it starts from the first step
	}
	for _, r := range a.resumed {
		if r[0] == chief.from && r[1] < g {
			a.origin[g] = max(a.origin[g], r[1])
		}
	}
	if a.origin[g] < 0 {
		return fmt.Errorf("generation %d begins with step %d, and no chief has said from which checkpoint", g, chief.from)
	}
	return nil
}

// together returns an error if a worker of the effective generation g has no
// ledger. It also returns an error if a worker begins with another step than
// the chief although all workers must resume after the chief's step.
func (a *account) together(g int) error {
	var errs []error
	chief := a.books[key{g, 0}]
	for w := range a.workers[g] {
		switch b := a.books[key{g, w}]; {
		case b == nil:
			errs = append(errs, fmt.Errorf("worker:%d has noted nothing in generation %d, which is in effect", w, g))
		case chief != nil && b.from != chief.from && !a.apart(g):
			errs = append(errs, fmt.Errorf("worker:%d in generation %d begins with step %d, the chief with %d", w, g, b.from, chief.from))
		}
	}
	return errors.Join(errs...)
}

// alike compares an ineffective generation with the effective generation that
// resumed from the same checkpoint. It returns an error if a worker began at a
// different step in each.
func (a *account) alike() error {
	var errs []error
	for _, k := range a.keys() {
		b := a.books[k]
		g, effective := a.next[a.origin[k.generation]]
		if !effective || g == k.generation || a.apart(g) != a.apart(k.generation) || a.books[key{g, 0}].from != a.books[key{k.generation, 0}].from {
			continue
		}
		if other := a.books[key{g, k.worker}]; other != nil && other.from != b.from {
			errs = append(errs, fmt.Errorf("worker:%d begins with step %d in generation %d and with %d in %d, from the same checkpoint", k.worker, b.from, k.generation, other.from, g))
		}
	}
	return errors.Join(errs...)
}

// apart reports whether each worker of generation g resumes after its own
// step. This is so if g has as many workers as the generation that wrote the
// checkpoint. In backup mode it is never so.
func (a *account) apart(g int) bool {
	return a.mode != "backup" && a.workers[a.origin[g]] == a.workers[g]
}
