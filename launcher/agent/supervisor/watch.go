//go:build linux

package supervisor

import (
	"cmp"
	"debug/buildinfo"
	"fmt"
	"slices"
	"time"

	"github.com/plx-run/plx/launcher/agent/sampler"
	"github.com/plx-run/plx/launcher/agent/waits"
	"github.com/plx-run/plx/launcher/protocol"
	"github.com/plx-run/plx/trainer/cluster"
)

// watch measures what the tasks do. It reports that to the driver (the process
// that controls the job) and to commands such as plx attach. It reads /proc in
// separate goroutines: such reads can block, and the supervisor's event loop
// must not wait for them.
type watch struct {
	*parts
	tasks    *tasks
	sampler  *sampler.Sampler
	program  sentProgram   // the job's program, if plx has sent one
	failing  string        // last error of measuring, so that each error is logged once; "" if there was none; only run accesses it
	turn     chan struct{} // semaphore of capacity 1, so that the supervisor works on one Look request at a time
	requests int           // number of requests for stacks so far; only the supervisor's event loop (field loop) accesses it
}

// run samples the tasks and the host periodically until the supervisor's event
// loop ends.
func (w *watch) run() {
	w.loop.background(func() { w.host.usage.Run(w.loop.quit) })
	for !within(w.sampler.Every(), w.loop.quit) {
		var targets []sampler.Target
		if !w.onLoop(func() { targets = w.targets() }) {
			return
		}
		if len(targets) > 0 {
			w.note(w.sampler.Take(targets, time.Now()))
		}
	}
}

// note logs an error of sampling, unless it is the same as the previous error.
func (w *watch) note(err error) {
	text := ""
	if err != nil {
		text = err.Error()
	}
	if text != "" && text != w.failing {
		w.host.log.Printf("measure tasks: %s", text)
	}
	w.failing = text
}

// targets returns the running tasks in the form that the sampler needs.
func (w *watch) targets() (all []sampler.Target) {
	for _, t := range w.tasks.launched() {
		if t.alive() {
			all = append(all, sampler.Target{Task: t.Task, Generation: t.generation, PID: t.child.PID,
				Output: t.outs[0].read.Load() + t.outs[1].read.Load(), Step: t.report.step, GPUs: uuids(t.Claims)})
		}
	}
	return all
}

// uuids returns the ids of the GPUs in claims. For a MIG device (a part of a GPU) it
// returns the whole GPU, because the sampler measures whole GPUs.
func uuids(claims []protocol.Claim) (all []string) {
	for _, c := range claims {
		all = append(all, cmp.Or(c.Whole, c.Device))
	}
	return all
}

// reserved returns for each GPU the name of a task that uses it, followed by the
// number of further tasks. The key is the GPU's UUID or PCI address.
func (w *watch) reserved() map[string]string {
	tasks := map[string][]string{}
	for _, t := range w.tasks.all {
		for _, id := range uuids(t.Claims) {
			tasks[id] = append(tasks[id], t.Task.String())
		}
	}
	all := map[string]string{}
	for id, names := range tasks {
		all[id] = slices.Min(names)
		if more := len(names) - 1; more > 0 {
			all[id] += fmt.Sprintf(" and %d more", more)
		}
	}
	return all
}

// answerLook answers a Look request on connection l: what the tasks do now. Requests
// that need expensive work are answered in the background, one at a time.
func (w *watch) answerLook(l *session, m protocol.ActivityRequest) {
	seen := protocol.ActivityReport{ID: m.ID, Generation: w.record.Generation, Tasks: map[cluster.Task]*protocol.Activity{}}
	measured := w.sampler.Activities(time.Now())
	for _, t := range w.tasks.launched() { // skip tasks that have ended since they were measured
		if !t.alive() {
			continue
		}
		var one protocol.Activity
		switch a := measured[t.Task]; {
		case a != nil && a.PID == t.child.PID:
			one = *a
		case m.Tell || m.Metrics: // report a new task that was not measured yet, because stacks and metrics need no measurement
			one.PID = t.child.PID
		default:
			continue
		}
		one.Age = time.Since(t.since)
		if m.Metrics {
			one.Metrics = t.reported.newest()
		}
		seen.Tasks[t.Task] = &one
	}
	if !m.Waits && !m.Stacks && !m.Host {
		l.send(protocol.Message{Seen: &seen})
		return
	}
	reserved := w.reserved()
	w.loop.background(func() {
		select {
		case w.turn <- struct{}{}:
			defer func() { <-w.turn }()
		case <-w.loop.quit:
			return
		}
		answer := seen
		if m.Waits || m.Stacks {
			answer = w.complete(seen, m)
		}
		if m.Host {
			use := w.host.usage.Use(reserved)
			answer.Host = &use
		}
		w.loop.do(func() { l.send(protocol.Message{Seen: &answer}) })
	})
}

// complete returns the answer to a Look request, extended by what the tasks'
// processes wait for and by their stacks, if m asks for these.
func (w *watch) complete(seen protocol.ActivityReport, m protocol.ActivityRequest) protocol.ActivityReport {
	var roots []int
	for _, a := range seen.Tasks {
		roots = append(roots, a.PID)
	}
	processes, err := waits.Collect(roots)
	if err != nil {
		w.host.log.Printf("inspect the processes of the tasks: %v", err)
	}
	processes = w.program.named(processes)
	var stacks map[cluster.Task]located
	if m.Stacks {
		stacks = w.stacks(processes)
	}
	all := map[cluster.Task]*protocol.Activity{}
	for task, a := range seen.Tasks {
		one := *a
		if m.Waits {
			one.Processes = processes[a.PID]
		}
		one = stacks[task].in(one, m.Tell)
		all[task] = &one
	}
	seen.Tasks = all
	return seen
}

// located are the stacks of one task.
type located struct {
	text   string
	file   string   // path of the file that contains the stacks; "" if writing failed
	places []string // source locations that the task is executing, see waits.Places
}

// in returns the activity a with the stacks added: the full text if all is
// true, or else an excerpt.
func (l located) in(a protocol.Activity, all bool) protocol.Activity {
	a.File, a.Training, a.Places = l.file, waits.Training(l.text), l.places
	if all {
		a.Stacks = l.text[:min(len(l.text), sentStacks)]
	} else {
		a.Excerpt = waits.Excerpt(l.text)
	}
	return a
}

// stacks collects the stacks of all tasks, writes them into the job's folder
// and returns them.
func (w *watch) stacks(processes map[int][]protocol.Process) map[cluster.Task]located {
	var all []subject
	if !w.onLoop(func() { all = w.subjects() }) {
		return nil
	}
	texts := w.collect(all, processes)
	w.onLoop(func() {
		for _, s := range all {
			if t := w.tasks.all[s.task]; t != nil && t.generation == s.generation {
				_, err := buildinfo.ReadFile(fmt.Sprintf("/proc/%d/exe", s.pid))
				t.golang = err == nil
			}
		}
	})
	return texts
}

// onLoop runs f on the supervisor's event loop and waits until f has returned.
// It returns false if the loop has ended without running f.
func (w *watch) onLoop(f func()) bool {
	done := make(chan struct{})
	w.loop.do(func() {
		defer close(done)
		f()
	})
	select {
	case <-done:
		return true
	case <-w.loop.quit:
		return false
	}
}
