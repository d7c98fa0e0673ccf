package jobstate

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"github.com/plx-run/plx/internal/plural"
	"github.com/plx-run/plx/trainer/cluster"
)

// tolerance decides which failures the job tolerates: losses of workers that it
// can do without, once the chief has said that it can. It is one generation's.
type tolerance struct {
	on      bool                  // the chief has said that the job tolerates the loss of other workers
	without map[cluster.Task]bool // lost workers that the job goes on without; nil: none
	short   string                // why a loss was not tolerated: too few workers would be left; "": no such loss

	// doubt holds failures of workers that blame a task which the job needs, for
	// Plan.Settle. If that task fails too, these workers are its victims.
	doubt failures
}

// take reports whether the job tolerates a failure, or may turn out to. sure says that no
// task which the job needs has failed, so that a worker that blames one is not in doubt.
func (t *tolerance) take(v view, f failure, sure bool) ([]Command, bool) {
	workers := t.dispensable(v, f)
	switch {
	case workers == nil:
		return nil, false
	case sure || !blamesNeeded(v, f):
		return t.goOnWithout(f, workers), true
	case v.stage == settling:
		return nil, false // it goes with what is being settled
	}
	first := len(t.doubt.all) == 0
	if t.doubt.add(f); !first {
		return nil, true
	}
	return timer(doubtTimer, v.plan.Settle), true
}

// dispensable returns the workers that a failure takes with it, if the job can do
// without them; else nil. The job needs the chief, which decides and saves, and
// the servers, which hold what is trained.
func (t *tolerance) dispensable(v view, f failure) []cluster.Task {
	if !t.on || f.hearsay || v.stage < starting || v.stage > settling || v.stage == finishing {
		return nil
	}
	var with []cluster.Task
	for _, spec := range v.hosts[f.host].tasks {
		e, ended := v.generation.exits[spec.Task]
		switch {
		case f.task != nil && spec.Task != *f.task, f.task == nil && ended && v.fault(f.host, e) == "":
		case spec.Task.Role != cluster.Worker, spec.Task.IsChief():
			return nil
		case !t.without[spec.Task]:
			with = append(with, spec.Task)
		}
	}
	all := v.generation.workers
	left := all - len(with) - len(t.without)
	if least := v.plan.Restarts.MinWorkers; left < least {
		t.short = fmt.Sprintf("; %d of %d workers are left, at least %d are needed (--min-workers)", left, all, least)
		return nil
	}
	return with
}

// blamesNeeded reports whether a failure blames a task that the job needs.
func blamesNeeded(v view, f failure) bool {
	peer, _, known := blamed(v, f)
	return known && (peer.Role != cluster.Worker || peer.IsChief())
}

// endDoubt returns the failures that were in doubt.
func (t *tolerance) endDoubt() []failure {
	doubt := t.doubt.all
	t.doubt = failures{}
	return doubt
}

// goOnWithout takes workers out of the job.
func (t *tolerance) goOnWithout(f failure, workers []cluster.Task) []Command {
	for _, d := range t.endDoubt() {
		if !slices.Contains(workers, *d.task) {
			t.doubt.add(d)
		}
	}
	if t.without == nil {
		t.without = map[cluster.Task]bool{}
	}
	var names []string
	for _, w := range workers {
		t.without[w] = true
		names = append(names, w.String())
	}
	who := "it"
	if f.task == nil {
		who = strings.Join(names, ", ")
	}
	return notice("%s; the job goes on without %s", f.reason, who)
}

// done reports whether every worker that was not taken out has ended without a
// fault.
func (t *tolerance) done(v view) bool {
	for task, h := range v.generation.hostOf {
		if task.Role != cluster.Worker || t.without[task] {
			continue
		}
		if e, ended := v.generation.exits[task]; !ended || v.fault(h, e) != "" {
			return false
		}
	}
	return true
}

// lingering returns the workers of host h that were taken out and have not ended:
// they have reported that they fail, and nothing more.
func (t *tolerance) lingering(v view, h int) (workers []cluster.Task) {
	for task := range t.without {
		if !v.generation.ended(task) && v.generation.runs(h, task) {
			workers = append(workers, task)
		}
	}
	slices.SortFunc(workers, func(a, b cluster.Task) int { return cmp.Compare(a.Index, b.Index) })
	return workers
}

// unclear reports whether a worker that was taken out may still run on a lost
// host. A job that is done waits for the end of that host's lease: nothing of the
// job is left when plx reports its end.
func (t *tolerance) unclear(v view) bool {
	for i, h := range v.hosts {
		if h.gone && h.clearing && len(t.lingering(v, i)) > 0 {
			return true
		}
	}
	return false
}

// fewer says without how many workers a job is done.
func (t *tolerance) fewer(v view) string {
	if len(t.without) == 0 {
		return ""
	}
	return fmt.Sprintf(", without %d of %s", len(t.without), plural.Count(v.generation.workers, "worker"))
}
