package chaos

import (
	"slices"
	"time"
)

// outcome is what becomes of a job.
type outcome string

// The outcomes. After each of them no process of the job is left anywhere.
const (
	// recovers: another generation resumes from a checkpoint, the job exits with
	// 0, and its weights are the same bits as without the fault.
	recovers outcome = "recovers"
	// goesOn: the job needs no other generation, exits with 0 and has those bits.
	goesOn outcome = "goes on"
	// either of the two.
	either outcome = "recovers or goes on"
	// ends: the job ends with an error that names host and cause. A launch of the
	// same name resumes from a checkpoint and comes to the same bits.
	ends outcome = "ends"
	// none: there can be no such cell.
	none outcome = ""
)

// promise is what must become of a cell. It is written down before the cell is tried.
type promise struct {
	outcome outcome       // none: there is no such cell; why says the reason
	within  time.Duration // longest time from the fault to the next step, or to the end of a job that is to end
	says    []string      // words of one line of plx after the fault, VICTIM and HOST replaced; empty: no check
	warns   []string      // words of one line of a task after the fault, HOST and ADDRESS replaced; empty: no check
	unsaved int           // most checkpoints that may fail, if warns is empty
	codes   []int         // allowed exit statuses of plx if the job is to end; else it must be 0
	why     string        // why there is no such cell; "": there is one
}

// lease is that of all jobs, the shortest that plx takes.
const lease = 5 * time.Second

// Bounds of the times. plx sees at once that a process ended, and after a while that
// one is silent. A host is lost a lease after it was last heard; its processes are
// gone another lease later.
const (
	soon     = 15 * time.Second
	silent   = 20 * time.Second
	twoLease = 2*lease + 20*time.Second
)

// row gives a promise to all cells of some victims and faults.
type row struct {
	arch    string   // architecture or mode; "": all architectures; loosely: all modes
	victims []victim // nil: all victims
	faults  []fault  // nil: all faults
	promise promise
}

func (r row) holds(c Cell) bool {
	in := r.arch == c.Arch || r.arch == "" && !c.loose() || r.arch == loosely && c.loose()
	return in && (r.victims == nil || slices.Contains(r.victims, c.Victim)) && (r.faults == nil || slices.Contains(r.faults, c.Fault))
}

var (
	tasks  = []victim{chief, worker, server}
	needed = []victim{chief, server}
)

// loosely stands for all modes in which workers do not wait for each other.
const loosely = "loosely"

// oneCopy is the checkpoint of which a copy was on its way to the lost worker.
const oneCopy = 1

// without begins the words that a job goes on without its second worker.
const without = "the job goes on without "

// promises: the first row that has the victim and the fault holds.
var promises = []row{
	{"allreduce", []victim{server}, nil, promise{why: "with nothing to own a server ends as soon as training begins"}},

	{"", tasks, []fault{kill, oom}, promise{outcome: recovers, within: soon, says: []string{"VICTIM", "HOST", "signal 9"}}},
	{"", tasks, []fault{stop}, promise{outcome: recovers, within: silent, says: []string{"VICTIM", "HOST"}}},
	{"", tasks, []fault{exit}, promise{outcome: recovers, within: soon, says: []string{"VICTIM", "HOST", "exited with status 0"}}},
	{"", tasks, []fault{reset}, promise{outcome: recovers, within: soon, says: []string{" on h"}}},
	// If a second copy of a checkpoint is changed, the job goes on without the checkpoint.
	{"", tasks, []fault{corrupt}, promise{outcome: either, within: soon, unsaved: oneCopy}},
	{"", tasks, []fault{cut, mute, deaf, power}, promise{outcome: recovers, within: twoLease, says: []string{"host HOST"}}},
	{"", tasks, []fault{slow}, promise{outcome: goesOn, within: silent}},
	{"", tasks, []fault{full}, promise{outcome: goesOn, within: soon, warns: []string{" on ADDRESS", "no space left"}}},
	{"", tasks, []fault{fsync}, promise{outcome: goesOn, within: soon, warns: []string{" on ADDRESS", "checkpoint.sync: an error"}}},

	{"", []victim{supervisor, watchdog, agent}, []fault{kill}, promise{outcome: recovers, within: silent, says: []string{"host HOST"}}},
	{"", []victim{supervisor}, []fault{oom}, promise{outcome: recovers, within: silent, says: []string{"host HOST"}}},
	{"", []victim{supervisor, agent}, []fault{stop}, promise{outcome: recovers, within: twoLease, says: []string{"host HOST"}}},
	{"", []victim{watchdog}, []fault{stop}, promise{outcome: goesOn, within: silent}},
	{"", []victim{agent}, []fault{reset}, promise{outcome: goesOn, within: silent, says: []string{"host HOST: connection lost"}}},
	{"", []victim{supervisor, watchdog, agent}, []fault{cut, mute, deaf, slow, power}, promise{why: "the host's network and power: the cells of the worker there"}},
	{"", []victim{supervisor, watchdog, agent}, []fault{exit}, promise{why: "no program of a user's"}},
	{"", []victim{supervisor, watchdog, agent}, []fault{full, fsync}, promise{why: "agents write no checkpoints"}},
	{"", []victim{supervisor, watchdog, agent, launching}, []fault{corrupt}, promise{why: "SSH refuses what was changed on its way; the cell is reset"}},
	{"", []victim{supervisor, watchdog}, []fault{reset}, promise{why: "the agent's connections: its own cell"}},
	{"", []victim{watchdog, agent}, []fault{oom}, promise{why: "as kill; tried on the supervisor"}},

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
	// The connection may have been that of a worker that nobody needs.
	{loosely, []victim{server}, []fault{reset}, promise{outcome: either, within: soon, unsaved: oneCopy, says: []string{" on h"}}},
	{loosely, needed, []fault{cut, power}, promise{outcome: recovers, within: twoLease, says: []string{"host HOST"}}},
	{loosely, needed, []fault{again}, promise{outcome: recovers, within: silent, says: []string{"2 of 3)", "VICTIM", "HOST", "signal 9"}}},
	{loosely, []victim{scaledChief, scaledWorker}, []fault{kill}, promise{outcome: either, within: twoLease, unsaved: oneCopy}},
	{loosely, []victim{joining}, []fault{cut}, promise{outcome: either, within: twoLease, unsaved: oneCopy}},
	// backup:1 needs two workers, and only one may be left.
	{"async", []victim{scaledWorker}, []fault{cut}, promise{outcome: either, within: twoLease, unsaved: oneCopy}},
	{"ssp", []victim{scaledChief}, []fault{power}, promise{outcome: either, within: twoLease, unsaved: oneCopy}},
	{loosely, nil, nil, promise{why: "as where workers wait for each other: a few cells show what the modes are about"}},

	{"", []victim{launching}, []fault{kill, oom, power}, promise{outcome: ends, within: lease + 2*time.Second, codes: []int{137}}},
	// The launcher resumes if it can within --wait-host.
	{"", []victim{launching}, []fault{stop, cut, mute, deaf}, promise{outcome: recovers, within: twoLease, says: []string{"host h"}}},
	{"", []victim{launching}, []fault{slow, reset}, promise{outcome: goesOn, within: silent}},
	{"", []victim{launching}, []fault{exit, full, fsync}, promise{why: "the launcher computes nothing and writes no checkpoints"}},

	{"", tasks, []fault{starting, again}, promise{outcome: recovers, within: silent, says: []string{"2 of 3)", "VICTIM", "HOST", "signal 9"}}},
	{"", []victim{worker}, []fault{regrouping}, promise{outcome: recovers, within: twoLease, says: []string{"without h3"}}},
	{"", nil, []fault{starting, again, regrouping}, promise{why: "two faults: a few cells"}},
	// plx scale may succeed or not, and reports which.
	{"", []victim{scaledChief, scaledWorker}, []fault{kill, cut, power}, promise{outcome: either, within: twoLease}},
	{"", []victim{joining}, []fault{cut, power}, promise{outcome: either, within: twoLease}},
	{"", []victim{scaledChief, scaledWorker, joining}, nil, promise{why: "a change of hosts that meets a fault: a few cells"}},

	{"", []victim{departed}, []fault{kill, cut, power}, promise{outcome: goesOn, within: silent}},
	{"", []victim{stray}, []fault{kill}, promise{outcome: recovers, within: soon, says: []string{"1 restart"}}},
	{"", []victim{stray}, []fault{power}, promise{outcome: recovers, within: twoLease, says: []string{"1 restart"}}},
	{"", []victim{seat}, []fault{kill, power}, promise{outcome: ends, within: lease + 2*time.Second, codes: []int{125}, says: []string{"HOST"}}},
	{"", []victim{departed, stray, seat}, nil, promise{why: "as with a launcher: a few cells show that none is needed"}},
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
