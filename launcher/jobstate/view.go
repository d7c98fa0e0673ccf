package jobstate

import (
	"fmt"
	"syscall"

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

	restarts int   // number of restarts so far
	coming   bool  // another generation is to follow the present one
	scaling  bool  // a change of hosts is under way
	saving   bool  // a stop has asked for a checkpoint, which may be complete
	expired  bool  // --max-time has run out
	launched bool  // tasks were started, in this generation or an earlier one
	stepped  bool  // a task has made a step, in this generation or an earlier one
	held     int64 // step after which the chief held the job for plx scale, see progress.heldAt; 0: it does not hold
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
			commands = append(commands, notice("host %s: told %s to end, and no end was reported", h.name(), count(n, "task"))...)
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
		return fmt.Sprintf("%s was ended by signal %d (%s)", who, e.Signal, syscall.Signal(e.Signal)) + because(e.Cause)
	case e.Code != 0:
		return fmt.Sprintf("%s exited with status %d", who, e.Code) + because(e.Cause)
	case e.Native && !e.Finished:
		return who + " exited with status 0 before its work was finished"
	}
	return ""
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
