package jobstate

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"github.com/plx-run/plx/internal/plural"
	"github.com/plx-run/plx/trainer/cluster"
)

// tolerance decides which failures the job tolerates in the current generation
// (run of all tasks). It tolerates none until the chief (worker 0) has
// reported that the job can lose workers. From then on, it tolerates losses of
// workers other than the chief.
type tolerance struct {
	on      bool                  // the chief (worker 0) has reported that the job tolerates the loss of other workers
	without map[cluster.Task]bool // lost workers without which the job continues
	short   string                // text for the verdict (how the job ended) if a loss would have left too few workers; otherwise empty

	// doubt holds failures of workers that say they lost the chief or a
	// parameter server. They wait here for the time Plan.Settle. If the named
	// task fails too in that time, it was the cause, and not these workers.
	doubt failures
}

// take reports whether the job tolerates failure f, or may do so once it is
// clear which task caused it. If sure is true, neither the chief (worker 0)
// nor a parameter server has failed, so take decides at once.
func (t *tolerance) take(v view, f failure, sure bool) ([]Command, bool) {
	workers := t.dispensable(v, f)
	switch {
	case workers == nil:
		return nil, false
	case sure || !namesNeededPeer(v, f):
		return t.goOnWithout(f, workers), true
	case v.stage == settling:
		return nil, false // in the stage settling, collect f with the other failures and decide later which one caused them
	}
	first := len(t.doubt.all) == 0
	if t.doubt.add(f); !first {
		return nil, true
	}
	return timer(doubtTimer, v.plan.Settle), true
}

// dispensable returns the workers that the job loses by failure f, if it can
// continue without them. It returns nil if it cannot. The job needs the chief
// (worker 0), which takes the checkpoints, and every parameter server.
func (t *tolerance) dispensable(v view, f failure) []cluster.Task {
	if !t.on || f.secondhand || v.stage < starting || v.stage > settling || v.stage == finishing {
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

// namesNeededPeer reports whether the task of failure f says that it lost the
// chief (worker 0) or a parameter server, without which the job cannot
// continue.
func namesNeededPeer(v view, f failure) bool {
	peer, _, known := namedPeer(v, f)
	return known && (peer.Role != cluster.Worker || peer.IsChief())
}

// endDoubt returns the failures in t.doubt and empties it.
func (t *tolerance) endDoubt() []failure {
	doubt := t.doubt.all
	t.doubt = failures{}
	return doubt
}

// goOnWithout makes the job continue without the given workers, and returns a
// notice about their loss.
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

// done reports whether all workers have ended successfully. Workers without
// which the job continues do not count.
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

// lingering returns the workers of host h that have reported their failure but
// whose processes have not ended. Only workers without which the job continues
// count.
func (t *tolerance) lingering(v view, h int) (workers []cluster.Task) {
	for task := range t.without {
		if !v.generation.ended(task) && v.generation.runs(h, task) {
			workers = append(workers, task)
		}
	}
	slices.SortFunc(workers, func(a, b cluster.Task) int { return cmp.Compare(a.Index, b.Index) })
	return workers
}

// unclear reports whether a worker may still run on a lost host although the
// job no longer needs that worker. Before a successful job ends, plx waits
// until the lost host's lease has expired, so that no process is left there.
func (t *tolerance) unclear(v view) bool {
	for i, h := range v.hosts {
		if h.lost && h.tasksMayRun && len(t.lingering(v, i)) > 0 {
			return true
		}
	}
	return false
}

// fewer returns a text for the verdict (how the job ended) of a successful
// job: how many of its workers were lost. It returns "" if none was.
func (t *tolerance) fewer(v view) string {
	if len(t.without) == 0 {
		return ""
	}
	return fmt.Sprintf(", without %d of %s", len(t.without), plural.Count(v.generation.workers, "worker"))
}
