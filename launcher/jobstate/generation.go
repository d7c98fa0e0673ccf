package jobstate

import (
	"cmp"
	"fmt"

	"github.com/plx-run/plx/internal/plural"
	"github.com/plx-run/plx/launcher/protocol"
	"github.com/plx-run/plx/trainer/cluster"
)

// generation is one run of all tasks of the job: on which hosts they run and
// how they have ended.
type generation struct {
	number int                            // number of this generation; 0 for the first
	hostOf map[cluster.Task]int           // index of the host on which each task runs
	exits  map[cluster.Task]protocol.Exit // exit of each task that has ended

	workers int // number of workers
	groups  int // number of hosts that run workers
}

// newGeneration returns a generation with the tasks that are currently
// assigned to the hosts.
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

// runs reports whether this generation assigns task t to host h.
func (g generation) runs(h int, t cluster.Task) bool {
	of, known := g.hostOf[t]
	return known && of == h
}

func (g generation) ended(t cluster.Task) bool {
	_, ended := g.exits[t]
	return ended
}

// servers returns the parameter servers among the given tasks that have not
// ended.
func (g generation) servers(tasks []protocol.TaskSpec) []cluster.Task {
	var servers []cluster.Task
	for _, t := range tasks {
		if t.Task.Role == cluster.PS && !g.ended(t.Task) {
			servers = append(servers, t.Task)
		}
	}
	return servers
}

// finished reports whether every worker has ended successfully and has
// reported that its work is complete.
func (g generation) finished() bool {
	for t := range g.hostOf {
		if e, ended := g.exits[t]; t.Role == cluster.Worker && (!ended || e.Code != 0 || e.Signal != 0 || !e.Finished) {
			return false
		}
	}
	return true
}

// renumber assigns new indices, from 0 without gaps, to the tasks of every
// host h for which in(h) is true. It numbers the tasks of each role in the
// order of the hosts, and within a host in the order of Plan.Tasks. Each task
// keeps its host and devices. The other hosts get no tasks.
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

// progress records the training steps that tasks have reported.
type progress struct {
	stepped bool  // a task has made a training step, in this generation or an earlier one
	chief   bool  // the chief (worker 0) has made a training step in this generation
	reached int64 // highest step that the chief has reported, in the newest generation in which it has made a step; 0 if none

	// Step after which the chief paused for a change of hosts. held is for a
	// pause in this generation, heldBefore for a pause in an earlier one. 0
	// means that the chief has not paused. The chief's first step in a later
	// generation resets heldBefore to 0.
	held, heldBefore int64
}

// take records a task's report of its steps. stepped is true if the report is
// a heartbeat and the task has made a step in this generation.
func (p *progress) take(v view, s protocol.TaskMessage) (commands []Command, stepped bool) {
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

// resumed returns a notice for the user when the chief makes its first step in
// a generation after the first. The notice says from which step the job
// resumes. resumed returns nothing if the chief starts from step 0 or after a
// change of hosts, because other messages report these cases.
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

// end saves and resets the values of the current generation before the next
// one begins.
func (p *progress) end() {
	p.chief, p.reached = false, max(p.reached, p.held)
	p.held, p.heldBefore = 0, cmp.Or(p.held, p.heldBefore)
}
