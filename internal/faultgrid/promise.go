package main

import (
	"slices"
	"time"
)

// outcome is what becomes of a job.
type outcome string

// The outcomes. Whatever it is, no process of the job is left anywhere.
const (
	// recovers: the job goes on in another generation from a checkpoint, exits
	// with 0, and its weights are the same bits as without the fault.
	recovers outcome = "recovers"
	// goesOn: likewise, but without another generation.
	goesOn outcome = "goes on"
	// either: the one or the other.
	either outcome = "recovers or goes on"
	// ends: the job ends with an error that names host and cause; a launch of
	// the same name goes on from a checkpoint to the same bits.
	ends outcome = "ends"
	// none: there can be no such cell.
	none outcome = ""
)

// promise is what a cell must come to: written down before it is tried.
type promise struct {
	outcome outcome
	// within bounds the time from the fault until training goes on, or until
	// the job has ended.
	within time.Duration
	// says are words that one line of the launcher's must hold. VICTIM, HOST
	// and ADDRESS stand for the task, the host and its address.
	says []string
	// warns are words that one line of a task's must hold.
	warns []string
	// unsaved is how many checkpoints need not be made.
	unsaved int
	// codes are the exit statuses of a job that ends.
	codes []int
	// why there is no cell.
	why string
}

// lease is that of all jobs, the shortest that plx takes.
const lease = 5 * time.Second

// Bounds of the times. A process that ends is seen at once, one that is silent
// after a while; a host is lost a lease after it was heard, and what ran there
// is gone another lease later.
const (
	soon     = 15 * time.Second
	silent   = 20 * time.Second
	twoLease = 2*lease + 20*time.Second
)

// row gives a promise to all cells of some victims and faults in one
// architecture, in all, or in all modes in which workers do not wait for each
// other.
type row struct {
	arch    string // "" for all
	victims []victim
	faults  []fault
	promise promise
}

func (r row) holds(c Cell) bool {
	in := r.arch == c.Arch || r.arch == "" && !c.loose() || r.arch == loosely && c.loose()
	return in && slices.Contains(r.victims, c.Victim) && slices.Contains(r.faults, c.Fault)
}

var (
	tasks  = []victim{chief, worker, server}
	needed = []victim{chief, server}
)

// loosely stands for all modes in which workers do not wait for each other.
const loosely = "loosely"

// oneCopy is the checkpoint of which a copy was on its way to who is lost.
const oneCopy = 1

// without are the words that a job goes on without its second worker.
const without = "the job goes on without "

// promises: the first row that has the victim and the fault holds.
var promises = []row{
	{"allreduce", []victim{server}, faults, promise{why: "with nothing to own a server ends as soon as training begins"}},

	{"", tasks, []fault{kill, oom}, promise{outcome: recovers, within: soon, says: []string{"VICTIM", "HOST", "signal 9"}}},
	{"", tasks, []fault{stop}, promise{outcome: recovers, within: silent, says: []string{"VICTIM", "HOST"}}},
	{"", tasks, []fault{exit}, promise{outcome: recovers, within: soon, says: []string{"VICTIM", "HOST", "exited with status 0"}}},
	{"", tasks, []fault{reset}, promise{outcome: recovers, within: soon, says: []string{" on h"}}},
	// There are bits that mean nothing in a frame of some kind.
	{"", tasks, []fault{corrupt}, promise{outcome: either, within: soon}},
	{"", tasks, []fault{cut, mute, deaf, power}, promise{outcome: recovers, within: twoLease, says: []string{"host HOST"}}},
	{"", tasks, []fault{slow}, promise{outcome: goesOn, within: silent}},
	{"", tasks, []fault{full}, promise{outcome: goesOn, within: soon, warns: []string{" on ADDRESS", "no space left"}}},
	{"", tasks, []fault{fsync}, promise{outcome: goesOn, within: soon, warns: []string{" on ADDRESS", "checkpoint.sync: an error"}}},

	{"", []victim{supervisor, guardian, agent}, []fault{kill}, promise{outcome: recovers, within: silent, says: []string{"host HOST"}}},
	{"", []victim{supervisor}, []fault{oom}, promise{outcome: recovers, within: silent, says: []string{"host HOST"}}},
	{"", []victim{supervisor, agent}, []fault{stop}, promise{outcome: recovers, within: twoLease, says: []string{"host HOST"}}},
	{"", []victim{guardian}, []fault{stop}, promise{outcome: goesOn, within: silent}},
	{"", []victim{agent}, []fault{reset}, promise{outcome: goesOn, within: silent, says: []string{"host HOST: connection lost"}}},
	{"", []victim{supervisor, guardian, agent}, []fault{cut, mute, deaf, slow, power}, promise{why: "the host's network and power: the cells of the worker there"}},
	{"", []victim{supervisor, guardian, agent}, []fault{exit}, promise{why: "no program of a user's"}},
	{"", []victim{supervisor, guardian, agent}, []fault{full, fsync}, promise{why: "agents write no checkpoints"}},
	{"", []victim{supervisor, guardian, agent, launching}, []fault{corrupt}, promise{why: "SSH refuses what was changed on its way; the cell is reset"}},
	{"", []victim{supervisor, guardian}, []fault{reset}, promise{why: "the agent's connections: its own cell"}},
	{"", []victim{guardian, agent}, []fault{oom}, promise{why: "as kill; tried on the supervisor"}},

	{loosely, []victim{worker}, []fault{kill}, promise{outcome: goesOn, within: soon, unsaved: oneCopy, says: []string{"VICTIM", "HOST", "signal 9", without}}},
	{loosely, []victim{worker}, []fault{stop}, promise{outcome: goesOn, within: silent, unsaved: oneCopy, says: []string{"VICTIM", "HOST", "it froze", without}}},
	{loosely, []victim{worker}, []fault{exit}, promise{outcome: goesOn, within: soon, unsaved: oneCopy, says: []string{"VICTIM", "HOST", "exited with status 0", without}}},
	{loosely, []victim{worker}, []fault{reset}, promise{outcome: goesOn, within: soon, unsaved: oneCopy, says: []string{"VICTIM", "HOST", without}}},
	{loosely, []victim{worker}, []fault{cut, power}, promise{outcome: goesOn, within: silent, unsaved: oneCopy, says: []string{"host HOST", without + "worker:1"}}},
	{loosely, []victim{supervisor}, []fault{kill, stop}, promise{outcome: goesOn, within: silent, unsaved: oneCopy, says: []string{"HOST", without}}},
	{loosely, needed, []fault{kill}, promise{outcome: recovers, within: soon, says: []string{"VICTIM", "HOST", "signal 9"}}},
	{loosely, needed, []fault{stop}, promise{outcome: recovers, within: silent, says: []string{"VICTIM", "HOST"}}},
	{loosely, needed, []fault{exit}, promise{outcome: recovers, within: soon, says: []string{"VICTIM", "HOST", "exited with status 0"}}},
	{loosely, []victim{chief}, []fault{reset}, promise{outcome: recovers, within: soon, says: []string{" on h"}}},
	// It may have been the connection with a worker that is not needed.
	{loosely, []victim{server}, []fault{reset}, promise{outcome: either, within: soon, unsaved: oneCopy, says: []string{" on h"}}},
	{loosely, needed, []fault{cut, power}, promise{outcome: recovers, within: twoLease, says: []string{"host HOST"}}},
	{loosely, needed, []fault{again}, promise{outcome: recovers, within: silent, says: []string{"(2 of 3)", "VICTIM", "HOST", "signal 9"}}},
	{loosely, []victim{scaledChief, scaledWorker}, []fault{kill}, promise{outcome: either, within: twoLease, unsaved: oneCopy}},
	{loosely, []victim{joining}, []fault{cut}, promise{outcome: either, within: twoLease, unsaved: oneCopy}},
	// backup:1 needs two workers, and only one may be left.
	{"async", []victim{scaledWorker}, []fault{cut}, promise{outcome: either, within: twoLease, unsaved: oneCopy}},
	{"ssp", []victim{scaledChief}, []fault{power}, promise{outcome: either, within: twoLease, unsaved: oneCopy}},
	{loosely, victims, faults, promise{why: "as where workers wait for each other: a few cells show what the modes are about"}},

	{"", []victim{launching}, []fault{kill, oom, power}, promise{outcome: ends, within: lease + 2*time.Second, codes: []int{137}}},
	// For --wait-host after that the launcher goes on when it can.
	{"", []victim{launching}, []fault{stop, cut, mute, deaf}, promise{outcome: recovers, within: twoLease, says: []string{"host h"}}},
	{"", []victim{launching}, []fault{slow, reset}, promise{outcome: goesOn, within: silent}},
	{"", []victim{launching}, []fault{exit, full, fsync}, promise{why: "the launcher computes nothing and writes no checkpoints"}},

	{"", tasks, []fault{starting, again}, promise{outcome: recovers, within: silent, says: []string{"(2 of 3)", "VICTIM", "HOST", "signal 9"}}},
	{"", []victim{worker}, []fault{regrouping}, promise{outcome: recovers, within: twoLease, says: []string{"without h3"}}},
	{"", victims[:7], []fault{starting, again, regrouping}, promise{why: "two faults: a few cells"}},
	// plx scale may succeed or not, and says which (scaled.go).
	{"", []victim{scaledChief, scaledWorker}, []fault{kill, cut, power}, promise{outcome: either, within: twoLease}},
	{"", []victim{joining}, []fault{cut, power}, promise{outcome: either, within: twoLease}},
	{"", []victim{scaledChief, scaledWorker, joining}, faults, promise{why: "a change of hosts that meets a fault: a few cells"}},

	{"", []victim{departed}, []fault{kill, cut, power}, promise{outcome: goesOn, within: silent}},
	{"", []victim{stray}, []fault{kill}, promise{outcome: recovers, within: soon, says: []string{"1 restart"}}},
	{"", []victim{stray}, []fault{power}, promise{outcome: recovers, within: twoLease, says: []string{"1 restart"}}},
	{"", []victim{seat}, []fault{kill, power}, promise{outcome: ends, within: lease + 2*time.Second, codes: []int{125}, says: []string{"HOST"}}},
	{"", []victim{departed, stray, seat}, faults, promise{why: "as with a launcher: a few cells show that none is needed"}},
}

// promise is the cell's.
func (c Cell) promise() promise {
	for _, r := range promises {
		if r.holds(c) {
			return r.promise
		}
	}
	return promise{why: "nobody has said what is to become of it"}
}
