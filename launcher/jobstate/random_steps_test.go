package jobstate

import (
	"fmt"
	"slices"
	"strings"

	"github.com/plx-run/plx/launcher/protocol"
	"github.com/plx-run/plx/trainer/cluster"
)

// course is a generation's: the step after which it began, and what the chief said
// of its steps.
type course struct {
	from  int64
	steps []int64 // that the chief reported
	chief bool    // it has made a step
	held  bool
}

// course is how the generation that begins goes on: from the checkpoint of the one
// before, which made no step, or from another.
func (g *game) course() course {
	if g.generation == 0 {
		return course{}
	}
	if before := g.courses[g.generation-1]; before.from > 0 && g.rand.Intn(3) > 0 {
		return course{from: before.from}
	}
	return course{from: int64(g.rand.Intn(9))}
}

// word is what a task of the present generation says of its steps.
func (g *game) word(t cluster.Task) cluster.ControlMessage {
	m := cluster.ControlMessage{Kind: cluster.Heartbeat}
	if g.rand.Intn(9) == 0 {
		m.Kind = cluster.Finished
	}
	if t.Role == cluster.Worker {
		m.From = g.courses[g.generation].from
		m.Step = m.From + int64(g.rand.Intn(9))
	}
	return m
}

// steps is what a task of a host says of its steps.
func (g *game) steps(h int) protocol.Message {
	task, _ := g.task(h)
	return protocol.Message{TaskReport: &protocol.TaskMessage{Task: task, Generation: g.of(), Message: g.word(task)}}
}

// taskMessage notes a task's word. With the chief's first step it is to be said from where
// the generation resumes.
func (g *game) taskMessage(h int, s protocol.TaskMessage) {
	counts := []cluster.ControlKind{cluster.Heartbeat, cluster.Failed, cluster.Finished}
	if s.Generation != g.generation || !g.runs(h, s.Task) || !slices.Contains(counts, s.Message.Kind) || !s.Task.IsChief() {
		return
	}
	c, w := &g.courses[g.generation], s.Message
	if w.Step > w.From && !c.chief {
		c.chief = true
		g.expected = g.resumes(w)
	}
	c.steps = append(c.steps, w.Step)
}

// held notes that the chief has saved and holds the job.
func (g *game) held() {
	c := &g.courses[g.generation]
	c.held = true
	c.steps = append(c.steps, heldStep(g.generation))
}

// heldStep is after which step the chief of a generation holds the job.
func heldStep(generation int) int64 { return int64(7 + generation) }

// stillHeld is after which step the job was held and since which no later
// generation of the chief's has made a step; 0: there is none.
func (g *game) stillHeld() int64 {
	for i, c := range slices.Backward(g.courses) {
		switch {
		case c.held:
			return heldStep(i)
		case c.chief:
			return 0
		}
	}
	return 0
}

// resumes is what is to be said when the chief makes its first step: it compares
// the step after which the generation began with all that the chief reported since
// the last generation in which it made a step.
func (g *game) resumes(w cluster.ControlMessage) string {
	if g.generation == 0 || w.From == 0 {
		return ""
	}
	first := g.generation - 1
	for first > 0 && !g.courses[first].chief {
		first--
	}
	var reached int64
	for i, c := range g.courses[first:g.generation] {
		if c.held && w.From >= heldStep(first+i) && !slices.ContainsFunc(g.courses[first+i+1:g.generation], func(c course) bool { return c.held }) {
			return ""
		}
		reached = max(reached, slices.Max(append(c.steps, 0)))
	}
	text := fmt.Sprintf("generation %d resumes after step %d", g.generation, w.From)
	switch lost := reached - w.From; {
	case lost == 1:
		text += "; at least 1 step will be recomputed"
	case lost > 1:
		text += fmt.Sprintf("; at least %d steps will be recomputed", lost)
	}
	return text
}

// resumption checks the reported step after which a generation resumes.
func (g *game) resumption(text string) {
	if !strings.Contains(text, " resumes after step ") {
		return
	}
	if text != g.expected {
		g.fail("%q, want %q", text, g.expected)
	}
	g.expected = ""
	g.resumed++
}
