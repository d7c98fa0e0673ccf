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

// stage is what the job is doing. Only Machine changes it.
type stage int

// The stages, in the order of their values.
const (
	gathering stage = iota
	preparing
	checking
	starting
	running
	finishing // workers are done, servers are told to end
	settling  // something failed, more may be reported
	stopping
	regrouping // nothing runs; the next generation begins when hosts and time allow
	over
)

// view is what the small machines may read of the job. They do not change it.
type view struct {
	plan       protocol.Plan // as Machine.plan: hosts that joined later are only in the field hosts
	stage      stage
	hosts      hosts
	generation generation

	restarts  int           // number of restarts so far
	coming    bool          // another generation is to follow the present one
	scaling   bool          // a change of hosts is under way
	saving    bool          // a stop has asked for a checkpoint, which may be complete
	expired   bool          // --max-time has run out
	suspended time.Duration // for how long the driver did not run lately; 0: it always did

	launched bool  // tasks were started, in this generation or an earlier one
	stepped  bool  // a task has made a step, in this generation or an earlier one
	held     int64 // step after which the chief held the job for plx scale, since which the chief has made none; 0: there is none
}

func (v view) name(h int) string { return v.hosts[h].name() }

// beforeStop reports whether the generation starts or runs.
func (v view) beforeStop() bool { return v.stage < finishing }

// between reports whether a generation has failed, or is being ended, and another
// one is to follow.
func (v view) between() bool { return v.stage == regrouping || v.stage == stopping && v.coming }

// chief is the index of the chief's host.
func (v view) chief() int { return v.generation.hostOf[cluster.Chief] }

// unended counts the tasks of host h that have not ended.
func (v view) unended(h int) (n int) {
	for _, t := range v.hosts[h].tasks {
		if !v.generation.ended(t.Task) {
			n++
		}
	}
	return n
}

// notEnded names the hosts whose tasks were told to end and have not ended.
func (v view) notEnded() (commands []Command) {
	for i, h := range v.hosts {
		if n := v.unended(i); h.told && !h.gone && n > 0 {
			commands = append(commands, notice("host %s: told %s to end, and no end was reported", h.name(), plural.Count(n, "task"))...)
		}
	}
	return commands
}

// fault says why an exit is a failure; "" if it is none.
func (v view) fault(h int, e protocol.Exit) string {
	who := fmt.Sprintf("%s on %s", e.Task, v.name(h))
	switch {
	case e.Told && (v.stage == finishing || v.stage == stopping):
		return ""
	case e.Told: // not by us: the agent's lease is over, or its host shuts down
		return who + " was told to end by its host's agent" + because(e.Cause)
	case !e.Started:
		return fmt.Sprintf("%s could not start: %s", who, e.Cause)
	case e.Signal != 0:
		return fmt.Sprintf("%s was ended by signal %d (%s)", who, e.Signal, syscall.Signal(e.Signal)) + because(causes(cmp.Or(e.Cause, ofMemory(e)), e.Shm))
	case e.Code != 0:
		return fmt.Sprintf("%s exited with status %d", who, e.Code) + because(causes(cmp.Or(e.Cause, ofMemory(e)), e.Shm))
	case e.Native && !e.Finished:
		return who + " exited with status 0 before its work was finished"
	}
	return ""
}

// ofMemory says that a task was killed because memory ran out. Without a proof the kernel
// counts for the whole host, so another program's process may be meant.
func ofMemory(e protocol.Exit) string {
	switch {
	case e.OOM != "":
		return "out of memory: " + e.OOM
	case e.OOMKills <= 0:
		return ""
	}
	return fmt.Sprintf("perhaps for want of memory: while it ran, the host's kernel killed %s for that", plural.Count(int(e.OOMKills), "process"))
}

// causes joins what the program and the host have said.
func causes(all ...string) string {
	return strings.Join(slices.DeleteFunc(all, func(cause string) bool { return cause == "" }), "; ")
}

func because(cause string) string {
	if cause == "" {
		return ""
	}
	return ": " + cause
}

// decision is what a small machine wants the job to do next: one of the types below, or
// nil for nothing. Only Machine.decide reads it.
type decision any

// The decisions, by the machine that takes them.
type (
	// start: a host has answered the request of a stage.
	answered struct {
		host  int // index of the host
		stage stage
	}
	// start: the job cannot start, because of a host.
	refused struct {
		host   int // index of the host
		reason string
	}
	// start, scale: tasks or hosts have failed.
	failed struct{ failures []failure }
	// hang: nothing moves in any task.
	hung struct {
		hang protocol.Hang
		plan protocol.HangPlan
		host int // index of the culprit's host, or of the chief's if there is no culprit
	}
	// save: the stop that waited for the save goes on.
	stopNow struct{ ask StopAsked }
	// scale: the chief has saved after a step and holds the job.
	held struct{ step int64 }
	// regroup: the next generation begins.
	begin struct{}
	// regroup: the hosts that a change of hosts wants are too few.
	tooFew struct{ why string }
	// regroup: the next generation cannot begin.
	abandon struct{ why string }
)

// watched returns the tasks of the generation, for the watch over hangs.
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

// seen takes what host h has told of its tasks. The watch judges by the last answer.
func (v view) seen(watch *hang.Watch, late *search, h int, s *protocol.Seen) ([]Command, decision) {
	unheard := func(h int) bool { return v.unended(h) > 0 && !watch.HasHeard(h) }
	if !watch.Heard(h, s) || late.finds(len(v.hosts), unheard) {
		return nil, nil
	}
	return v.follow(watch.Judge(v.watched(), v.scaling || v.saving))
}

// follow turns advice of the watch into commands and a decision.
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
