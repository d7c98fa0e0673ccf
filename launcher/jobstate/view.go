package jobstate

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/plx-run/plx/internal/plural"
	"github.com/plx-run/plx/launcher/hang"
	"github.com/plx-run/plx/launcher/protocol"
	"github.com/plx-run/plx/trainer/cluster"
)

// stage is a stage of the job, such as preparing or running. Only Machine
// changes the job's stage.
type stage int

// The stages. Comparisons such as stage < finishing depend on their order.
const (
	gathering stage = iota
	preparing
	checking
	starting
	running
	finishing // all workers are done; the servers are being stopped
	settling  // something failed; further failures are being collected
	stopping
	regrouping // no task runs; the job waits to begin the next generation
	over
)

// view is the part of the Machine's state that the submachines may read. The
// submachines must not change it.
type view struct {
	plan       protocol.Plan // copy of Machine.plan; hosts that joined later are only in the field hosts
	stage      stage
	hosts      hosts
	generation generation

	restarts  int           // number of restarts of the job so far
	coming    bool          // another generation will follow the current one
	scaling   bool          // a change of hosts (plx scale) is under way
	saving    bool          // a stop with a checkpoint was requested; remains true after the checkpoint
	expired   bool          // the job's time limit (--max-time) has expired
	suspended time.Duration // how long the driver process was recently suspended; 0 if it was not

	launched bool  // tasks were started, in this generation or an earlier one
	stepped  bool  // a task has made a step, in this generation or an earlier one
	held     int64 // number of the step after which the chief paused training for plx scale; 0 if it did not, or has made a later step
}

func (v view) name(h int) string { return v.hosts[h].name() }

// beforeStop reports whether the current generation has not begun to end,
// which means a stage before finishing.
func (v view) beforeStop() bool { return v.stage < finishing }

// between reports whether the current generation has failed or is being
// stopped and another one will follow.
func (v view) between() bool { return v.stage == regrouping || v.stage == stopping && v.coming }

// chief returns the index of the host that runs the chief (worker 0).
func (v view) chief() int { return v.generation.hostOf[cluster.Chief] }

// unended returns the number of tasks of host h that have not ended.
func (v view) unended(h int) (n int) {
	for _, t := range v.hosts[h].tasks {
		if !v.generation.ended(t.Task) {
			n++
		}
	}
	return n
}

// unendedNotices returns a notice for each host whose tasks were asked to stop but
// have not all ended.
func (v view) unendedNotices() (commands []Command) {
	for i, h := range v.hosts {
		if n := v.unended(i); h.startSent && !h.lost && n > 0 {
			commands = append(commands, notice("host %s: told %s to end, and no end was reported", h.name(), plural.Count(n, "task"))...)
		}
	}
	return commands
}

// fault returns why the exit e of a task on host h is a failure, or "" if the
// exit is no failure.
func (v view) fault(h int, e protocol.Exit) string {
	who := fmt.Sprintf("%s on %s", e.Task, v.name(h))
	switch {
	case e.StopRequested && (v.stage == finishing || v.stage == stopping):
		return ""
	case e.StopRequested: // this process, which controls the job, did not ask the task to stop: the agent's lease has expired, or the host shuts down
		return who + " was told to end by its host's agent" + because(e.Cause)
	case !e.Started:
		return fmt.Sprintf("%s could not start: %s", who, e.Cause)
	case e.Signal != 0:
		return fmt.Sprintf("%s was ended by signal %d (%s)", who, e.Signal, syscall.Signal(e.Signal)) + because(causes(cmp.Or(e.Cause, outOfMemory(e)), e.Shm))
	case e.Code != 0:
		return fmt.Sprintf("%s exited with status %d", who, e.Code) + because(causes(cmp.Or(e.Cause, outOfMemory(e)), e.Shm))
	case e.Native && !e.Finished:
		return who + " exited with status 0 before its work was finished"
	}
	return ""
}

// outOfMemory returns a text if the kernel killed the task because memory ran
// out, or may have done so. e.OOM is evidence about this task. Without it,
// only the number of processes that the host's kernel killed for this reason
// is known (e.OOMKills); they may belong to another program.
func outOfMemory(e protocol.Exit) string {
	switch {
	case e.OOM != "":
		return "out of memory: " + e.OOM
	case e.OOMKills <= 0:
		return ""
	}
	return fmt.Sprintf("perhaps for want of memory: while it ran, the host's kernel killed %s for that", plural.Count(int(e.OOMKills), "process"))
}

// causes joins texts about the cause of an exit: the program's own error
// message and what the agent has found. It skips empty texts.
func causes(all ...string) string {
	return strings.Join(slices.DeleteFunc(all, func(cause string) bool { return cause == "" }), "; ")
}

func because(cause string) string {
	if cause == "" {
		return ""
	}
	return ": " + cause
}

// decision is what the job does next, as a submachine (part of Machine, such
// as start or save) has decided. It is one of the types below, or nil if the
// job only continues. Machine.decide carries out the decision.
type decision any

// The decisions, each with the submachine that makes it.
type (
	// answered is made by start: a host has answered the request of a stage.
	answered struct {
		host  int // index of the host
		stage stage
	}
	// refused is made by start: the generation cannot start because of a host.
	refused struct {
		host   int // index of the host
		reason string
	}
	// failed is made by start and scale: tasks or hosts have failed.
	failed struct{ failures []failure }
	// hung is made by package hang: no task makes progress.
	hung struct {
		hang protocol.Hang
		plan protocol.HangPlan
		host int // index of the host that caused the hang, or of the chief's host if the cause is unknown
	}
	// stopNow is made by save: plx stop has waited for a checkpoint, and the
	// job can be stopped now.
	stopNow struct{ ask StopAsked }
	// held is made by scale: the chief has taken a checkpoint after this step
	// and has paused.
	held struct{ step int64 }
	// begin is made by regroup: the next generation begins.
	begin struct{}
	// tooFew is made by regroup: after plx scale has changed the hosts, too few
	// are available.
	tooFew struct{ why string }
	// abandon is made by regroup: the job ends, because the next generation
	// cannot begin.
	abandon struct{ why string }
)

// watched returns the tasks of the generation in the form that package hang
// needs.
func (v view) watched() (all []hang.Task) {
	for i, h := range v.hosts {
		for _, t := range h.tasks {
			one := hang.Task{Name: t.Task, Host: h.name(), HostIndex: i}
			if e, ended := v.generation.exits[t.Task]; ended {
				one = hang.Task{Name: t.Task, Host: h.name(), HostIndex: i, Exit: &e}
			}
			all = append(all, one)
		}
	}
	return all
}

// seen passes the report of host h about its tasks to the hang detection. Once
// all hosts have reported, the hang detection evaluates the reports. The
// search late looks for a host that has not reported.
func (v view) seen(watch *hang.Watch, late *search, h int, s *protocol.ActivityReport) ([]Command, decision) {
	unheard := func(h int) bool { return v.unended(h) > 0 && !watch.HasHeard(h) }
	if !watch.Heard(h, s) || late.finds(len(v.hosts), unheard) {
		return nil, nil
	}
	return v.follow(watch.Judge(v.watched(), v.scaling || v.saving))
}

// follow converts the result of the hang detection into commands and a
// decision.
func (v view) follow(a hang.Advice) (commands []Command, d decision) {
	for i := range v.hosts {
		if a.Ask != nil && v.unended(i) > 0 {
			commands = append(commands, send(i, protocol.Message{Look: a.Ask}))
		}
	}
	commands = append(commands, timer(hangTimer, a.After)...)
	if a.Moves {
		commands = append(commands, notice("the job moves again")...)
	}
	if a.Hang == nil {
		return commands, nil
	}
	commands = append(commands, notice("nothing has moved for %s: %s", a.Hang.After, plural.Count(len(v.generation.hostOf), "task"))...)
	for _, line := range a.Hang.Waits {
		commands = append(commands, Note{Text: line})
	}
	host := v.chief()
	for task, h := range v.generation.hostOf {
		if task.String() == a.Hang.Culprit {
			host = h
		}
	}
	commands = append(commands, notice("%s", hang.Line(*a.Hang))...)
	for _, line := range a.Hang.Stack {
		commands = append(commands, notice("  %s", line)...)
	}
	return append(commands, Hung{*a.Hang}), hung{*a.Hang, v.plan.Hang, host}
}
