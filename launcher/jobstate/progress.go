package jobstate

import (
	"cmp"
	"fmt"

	"github.com/plx-run/plx/launcher/protocol"
	"github.com/plx-run/plx/trainer/cluster"
)

// progress is how far the job has come, as its tasks report.
type progress struct {
	stepped bool  // a task has made a step, in this generation or an earlier one
	chief   bool  // the chief has made a step in this generation
	reached int64 // last step that the chief has reported since a generation began in which it made one

	// Step after which a change of hosts held the job, in this generation and in
	// an earlier one; 0: none, or the chief has made a step in a later generation.
	held, heldBefore int64
}

// take takes a task's report of its steps. It reports whether the task has made
// one in this generation.
func (p *progress) take(v view, s protocol.Said) (commands []Command, stepped bool) {
	w := s.Message
	stepped = w.Step > w.From
	p.stepped = p.stepped || stepped
	if w.Kind != cluster.Heartbeat && w.Kind != cluster.Failed && w.Kind != cluster.Finished {
		return nil, false
	}
	if s.Task.IsChief() {
		if stepped && !p.chief {
			commands = p.resumed(v, w.From)
			p.chief, p.reached, p.heldBefore = true, 0, 0
		}
		p.reached = max(p.reached, w.Step)
	}
	return commands, stepped && w.Kind == cluster.Heartbeat
}

// resumed tells the user, with the chief's first step in a later generation, from
// which step it resumes. A chief that starts from the beginning says so itself,
// and a change of hosts has said it.
func (p *progress) resumed(v view, from int64) []Command {
	if v.generation.number == 0 || from == 0 || p.heldBefore > 0 && from >= p.heldBefore {
		return nil
	}
	text := fmt.Sprintf("generation %d resumes after step %d", v.generation.number, from)
	if lost := p.reached - from; lost > 0 {
		text += fmt.Sprintf("; at least %s will be recomputed", count(int(lost), "step"))
	}
	return notice("%s", text)
}

// end ends a generation.
func (p *progress) end() {
	p.chief, p.reached = false, max(p.reached, p.held)
	p.held, p.heldBefore = 0, cmp.Or(p.held, p.heldBefore)
}

// holdAt notes that the chief holds the job after a step, which is saved.
func (p *progress) holdAt(step int64) { p.held = step }

// heldAt is the step after which the job was held and since which the chief has
// made none; 0: there is none.
func (p *progress) heldAt() int64 { return cmp.Or(p.held, p.heldBefore) }
