package coordinator

import (
	"fmt"

	"github.com/plx-run/plx/trainer/cluster"
)

// loss is what goes with a generation that is ended, in steps.
type loss struct {
	chief, others int64 // of its group, and of the others
	several       bool  // there were others
	shared        bool  // several workers were in a group
	uncounted     bool  // there were too many others
	again         bool  // the others' are made again, as the chief's are
	exact         bool
}

// noteRedone tells, once the chief has made a step in a generation, what was lost
// with the ones before it. Nothing was where they were held, and the job goes on
// there.
func (m *Machine) noteRedone(w cluster.ControlMessage) {
	held := m.progress.past.held
	if w.From == 0 || held > 0 && w.From >= held {
		return // of the first the chief tells itself
	}
	m.note("generation %d goes on behind step %d: %s", m.generation, w.From, m.progress.past.lost(w))
}

// lost is what a checkpoint that the chief goes on from lacks. Where it was made by
// as many groups as there were, it says how many steps of each it has. Otherwise
// all had begun where the chief had; and where there are as many now, they do so
// again.
func (a *account) lost(w cluster.ControlMessage) loss {
	l := loss{several: a.groups > 1, shared: a.workers > a.groups, uncounted: a.groups > cluster.MaxGroups, again: max(w.Groups, 1) == a.groups}
	l.exact = len(a.by) > 0 && (l.uncounted || len(a.by) == a.groups)
	for i, g := range a.by {
		switch {
		case i == 0:
			l.chief = max(0, g.steps-w.From)
		case l.uncounted:
			continue
		case len(w.Cut) == a.groups:
			l.others += max(0, g.steps-w.Cut[i])
		default:
			l.others += max(0, g.steps-w.From)
		}
		l.exact = l.exact && g.exact
	}
	return l
}

func (l loss) String() string {
	least, whose, others := "", "of the chief", "other workers"
	if !l.exact {
		least = "at least "
	}
	if l.shared {
		whose, others = "of the chief's group", "other groups"
	}
	steps := count(int(l.chief), "step")
	switch {
	case l.uncounted:
		return fmt.Sprintf("%s%s %s %s made again; there are too many %s to count theirs", least, steps, whose, are(l.chief), others)
	case l.chief+l.others == 0 && l.exact:
		return "no step is made again"
	case l.chief+l.others == 0:
		return "steps made since are made again, it is not known how many"
	case !l.several:
		return fmt.Sprintf("%s%s %s made again", least, steps, are(l.chief))
	case l.again:
		return fmt.Sprintf("%s%s %s and %d of %s are made again", least, steps, whose, l.others, others)
	}
	return fmt.Sprintf("%s%s %s %s made again, and %d of %s %s lost", least, steps, whose, are(l.chief), l.others, others, are(l.others))
}

func are(n int64) string {
	if n == 1 {
		return "is"
	}
	return "are"
}
