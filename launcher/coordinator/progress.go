package coordinator

import (
	"github.com/plx-run/plx/launcher/protocol"
	"github.com/plx-run/plx/trainer/cluster"
)

// progress is how far the job has come since it last went on from a checkpoint,
// in steps as they are numbered, as far as workers have told.
type progress struct {
	generation int   // in which the chief has made a step
	chief      int64 // the chief's steps
	exact      bool  // it makes no more of them
	most       int64 // any worker's
	held       int64 // it was held behind this step, which is saved; 0: it was not
}

// holdAt notes that the job stands still behind a step.
func (p *progress) holdAt(step int64) {
	p.chief, p.most, p.exact, p.held = max(p.chief, step), max(p.most, step), true, step
}

// progressed takes what a task says of its steps.
func (m *Machine) progressed(s protocol.Said) {
	w := s.Message
	m.stepped = m.stepped || w.Step > w.From
	if w.Step <= w.From || w.Kind != cluster.Heartbeat && w.Kind != cluster.Failed {
		return
	}
	if w.Kind == cluster.Heartbeat {
		m.sawStep()
	}
	if s.Task.IsChief() && m.progress.generation < m.generation {
		m.noteRedone(w)
		m.progress = progress{generation: m.generation}
	}
	p := &m.progress
	if p.generation < m.generation || s.Task.Role != cluster.Worker {
		return // what is made again counts for no progress before that is noted
	}
	p.most = max(p.most, w.Step)
	if s.Task.IsChief() {
		p.chief, p.exact = max(p.chief, w.Step), p.exact || w.Kind == cluster.Failed
	}
}

// worked reports whether the chief has made a step in this generation. Where it
// has not the processes themselves may be what is wrong: none is kept.
func (m *Machine) worked() bool { return m.stepped && m.progress.generation == m.generation }

// noteRedone tells, once a generation has made a step, how many were lost with
// the ones before it. Workers that wait for each other are in the same step, so
// that the word of any is good where the chief had no time for its last; what
// others have made beside the chief nobody has counted.
func (m *Machine) noteRedone(w cluster.ControlMessage) {
	p := m.progress
	made, least := p.chief, ""
	if !p.exact {
		least = "at least "
		if !w.Loose {
			made = p.most
		}
	}
	whose, others := "", ""
	if w.Loose {
		whose, others = " of the chief", "; what the other workers have made since is lost"
	}
	lost := made - w.From
	switch {
	case w.From == 0: // the chief says that it begins anew
	case lost > 0:
		m.note("generation %d goes on behind step %d: %s%s%s %s made again%s", m.generation, w.From, least, count(int(lost), "step"), whose, are(lost), others)
	case p.held > 0: // and goes on there
	case p.exact:
		m.note("generation %d goes on behind step %d: no step%s is made again%s", m.generation, w.From, whose, others)
	default:
		m.note("generation %d goes on behind step %d: steps made since are made again, it is not known how many", m.generation, w.From)
	}
}

func are(n int64) string {
	if n == 1 {
		return "is"
	}
	return "are"
}
