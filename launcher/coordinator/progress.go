package coordinator

import (
	"cmp"

	"github.com/plx-run/plx/launcher/protocol"
	"github.com/plx-run/plx/trainer/cluster"
)

// progress is how far the job has come, in steps as they are numbered, as far as
// tasks have told.
type progress struct {
	now     tally   // in the present generation
	past    account // in those before, until it is told what was lost of that
	stepped bool    // the chief has made a step in the present one, or has none to make
}

// tally is what tasks have told of a generation's steps. Workers count those that
// they were told are made. A server has applied as many, and perhaps one more of
// each group, which was under way when it ended.
type tally struct {
	groups int // whose workers take every step together; 0: nobody has told
	by     []standing
	held   int64 // it was held behind this step of the chief's, which is saved; 0: it was not
}

// standing is how far a group has come. A number is -1 where nobody has said so.
type standing struct {
	from  int64 // its workers began behind this step
	told  int64 // by a worker
	made  int64 // by a server
	last  int64 // by the worker that speaks for the group, which makes no more
	least int64 // by servers that make no more: they wait for each other
}

// account is what a generation had made when it ended.
type account struct {
	workers int
	groups  int // as in tally, as is held
	by      []sum
	held    int64
}

// sum is how many steps a group had made, and whether that is all of them.
type sum struct {
	steps int64
	exact bool
}

// progressed takes what a task says of its steps.
func (m *Machine) progressed(s protocol.Said) {
	w, p := s.Message, &m.progress
	stepped := w.Step > w.From
	m.stepped = m.stepped || stepped
	if w.Kind != cluster.Heartbeat && w.Kind != cluster.Failed && w.Kind != cluster.Finished {
		return
	}
	if stepped && w.Kind == cluster.Heartbeat {
		m.sawStep()
	}
	done := w.Kind == cluster.Heartbeat && w.Last && w.Cut != nil && m.stage == running // it waits for the others
	if (stepped || done) && s.Task.IsChief() && !p.stepped {
		if m.generation > 0 {
			m.noteRedone(w)
		}
		p.past, p.stepped = account{}, true
	}
	if s.Task.Role == cluster.Worker {
		p.now.worked(w)
	} else {
		p.now.served(w)
	}
}

// worked reports whether a step was made in this generation, in a later one than
// the first by the chief. Where none was the processes themselves may be what is
// wrong: none is kept.
func (m *Machine) worked() bool { return m.stepped && (m.generation == 0 || m.progress.stepped) }

// end closes the account of a generation. Where the chief has made no step in it,
// what others have made adds to what was there before.
func (p *progress) end(workers int) {
	if p.stepped || p.now.held > 0 || len(p.past.by) == 0 {
		p.past = p.now.account(workers)
	} else {
		p.past.add(p.now)
	}
	p.now, p.stepped = tally{}, false
}

// holdAt notes that the job stands still behind a step.
func (p *progress) holdAt(step int64) {
	p.now.held = step
	chief := p.now.group(0)
	chief.last = max(chief.last, step)
}

// held is the step behind which the job was held and since which the chief has
// made none, 0: there is none.
func (p *progress) held() int64 { return cmp.Or(p.now.held, p.past.held) }

// worked takes a worker's word. One that counts no groups has one.
func (t *tally) worked(w cluster.ControlMessage) {
	groups := max(w.Groups, 1)
	if w.Group < 0 || w.Group >= groups || w.Step == 0 && w.Groups == 0 {
		return // it does not train yet
	}
	t.groups = max(t.groups, groups)
	if w.Group >= cluster.MaxGroups {
		return
	}
	g := t.group(w.Group)
	g.from, g.told = w.From, max(g.told, w.Step)
	if w.Last {
		g.last = max(g.last, w.Step)
	}
}

// served takes a server's word.
func (t *tally) served(w cluster.ControlMessage) {
	t.groups = max(t.groups, len(w.Made))
	for i, n := range w.Made[:min(len(w.Made), cluster.MaxGroups)] {
		g := t.group(i)
		g.made = max(g.made, n)
		if w.Last && (g.least < 0 || n < g.least) {
			g.least = n
		}
	}
}

func (t *tally) group(i int) *standing {
	for len(t.by) <= i {
		t.by = append(t.by, standing{-1, -1, -1, -1, -1})
	}
	return &t.by[i]
}

func (t *tally) account(workers int) account {
	a := account{workers: workers, groups: t.groups, held: t.held}
	for _, g := range t.by {
		a.by = append(a.by, g.sum())
	}
	return a
}

// sum is how many steps a group has made. Its own last word is the best one, what
// servers say the next: what none could tell any more was not applied by all.
func (g standing) sum() sum {
	switch {
	case g.last >= 0:
		return sum{g.last, true}
	case g.least >= 0:
		return sum{max(g.least, g.told), true}
	}
	return sum{max(g.told, g.made), false}
}

// add takes what groups have made in a later generation, which went on from the
// same checkpoint. Groups of another number have made other steps: then it is not
// known how many were made in all.
func (a *account) add(later tally) {
	for i, g := range later.by {
		now := g.sum()
		if g.from < 0 || now.steps <= g.from {
			continue // it has made none
		}
		if later.groups != a.groups {
			for j := range a.by {
				a.by[j].exact = false
			}
			continue
		}
		for len(a.by) <= i {
			a.by = append(a.by, sum{steps: -1})
		}
		a.by[i] = sum{max(a.by[i].steps, now.steps), a.by[i].exact && now.exact}
	}
}
