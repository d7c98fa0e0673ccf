package jobstate

import (
	"cmp"
	"fmt"

	"github.com/plx-run/plx/internal/plural"
	"github.com/plx-run/plx/launcher/protocol"
	"github.com/plx-run/plx/trainer/cluster"
)

// generation is one run of the job's tasks: where they run and how they ended.
type generation struct {
	number int                            // 0 for the first
	hostOf map[cluster.Task]int           // index of the host that runs each task
	exits  map[cluster.Task]protocol.Exit // how tasks ended; a task that has not ended has no entry

	workers int // number of workers
	groups  int // number of hosts with workers
}

// newGeneration returns a generation with the tasks that the hosts have now.
func newGeneration(number int, all hosts) generation {
	g := generation{number: number, hostOf: map[cluster.Task]int{}, exits: map[cluster.Task]protocol.Exit{}}
	for i, h := range all {
		for _, t := range h.tasks {
			g.hostOf[t.Task] = i
		}
		if n := protocol.Workers(h.tasks); n > 0 {
			g.workers += n
			g.groups++
		}
	}
	return g
}

// runs reports whether a task of this generation belongs to host h.
func (g generation) runs(h int, t cluster.Task) bool {
	of, known := g.hostOf[t]
	return known && of == h
}

func (g generation) ended(t cluster.Task) bool {
	_, ended := g.exits[t]
	return ended
}

// servers returns the servers among tasks that have not ended.
func (g generation) servers(tasks []protocol.TaskSpec) []cluster.Task {
	var servers []cluster.Task
	for _, t := range tasks {
		if t.Task.Role == cluster.PS && !g.ended(t.Task) {
			servers = append(servers, t.Task)
		}
	}
	return servers
}

// finished reports whether every worker had ended well before it was told to end.
func (g generation) finished() bool {
	for t := range g.hostOf {
		if e, ended := g.exits[t]; t.Role == cluster.Worker && (!ended || e.Code != 0 || e.Signal != 0 || !e.Finished) {
			return false
		}
	}
	return true
}

// renumber gives the tasks of the hosts that are in new indices, from 0 without
// gaps: workers in the order of the hosts and of their local ranks, servers in the
// order of the hosts. Each host keeps its devices. A host that is not in gets no
// tasks.
func renumber(all hosts, in func(h int) bool) [][]protocol.TaskSpec {
	next := map[cluster.Role]int{}
	laid := make([][]protocol.TaskSpec, len(all))
	for i, h := range all {
		if !in(i) {
			continue
		}
		for _, t := range h.plan.Tasks {
			t.Task.Index = next[t.Task.Role]
			next[t.Task.Role]++
			laid[i] = append(laid[i], t)
		}
	}
	return laid
}

// progress is how far the job has come, as its tasks report.
type progress struct {
	stepped bool  // a task has made a step, in this generation or an earlier one
	chief   bool  // the chief has made a step in this generation
	reached int64 // highest step that the chief reported in the last generation in which it stepped; 0: none

	// Step after which the chief held the job for plx scale: held in this generation,
	// heldBefore in an earlier one. Zero: it did not hold the job. The chief's first
	// step in a later generation sets heldBefore to zero.
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
		text += fmt.Sprintf("; at least %s will be recomputed", plural.Count(int(lost), "step"))
	}
	return notice("%s", text)
}

// end ends a generation.
func (p *progress) end() {
	p.chief, p.reached = false, max(p.reached, p.held)
	p.held, p.heldBefore = 0, cmp.Or(p.held, p.heldBefore)
}
