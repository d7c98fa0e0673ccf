package chaos

import (
	"slices"
	"time"
)

// Outcome is what becomes of a job.
type Outcome string

// The outcomes. After each of them no process of the job is left anywhere.
const (
	// Recovers: another generation resumes from a checkpoint, the job exits with
	// 0, and its weights are the same bits as without the fault.
	Recovers Outcome = "recovers"
	// GoesOn: the job needs no other generation, exits with 0 and has those bits.
	GoesOn Outcome = "goes on"
	// Either of the two.
	Either Outcome = "recovers or goes on"
	// Ends: the job ends with an error that names host and cause. A launch of the
	// same name resumes from a checkpoint and comes to the same bits.
	Ends Outcome = "ends"
	// none: there can be no such cell.
	none Outcome = ""
)

// Promise is what must become of a cell. It is written down before the cell is tried.
type Promise struct {
	Outcome Outcome       // none: there is no such cell; why says the reason
	Within  time.Duration // longest time from the fault to the next step, or to the end of a job that is to end
	Says    []string      // words of one line of plx after the fault, VICTIM and HOST replaced; empty: no check
	Warns   []string      // words of one line of a task after the fault, HOST and ADDRESS replaced; empty: no check
	Unsaved int           // most checkpoints that may fail, if warns is empty
	Codes   []int         // allowed exit statuses of plx if the job is to end; else it must be 0
	why     string        // why there is no such cell; "": there is one
}

// Lease is that of all jobs, the shortest that plx takes.
const Lease = 5 * time.Second

// Bounds of the times. plx sees at once that a process ended, and after a while that
// one is silent. A host is lost a lease after it was last heard; its processes are
// gone another lease later.
const (
	soon     = 15 * time.Second
	silent   = 20 * time.Second
	twoLease = 2*Lease + 20*time.Second
)

// row gives a promise to all cells of some victims and faults.
type row struct {
	arch    string   // architecture or mode; "": all architectures; loosely: all modes
	victims []Victim // nil: all victims
	faults  []Fault  // nil: all faults
	Promise Promise
}

func (r row) holds(c Cell) bool {
	in := r.arch == c.Arch || r.arch == "" && !c.Loose() || r.arch == loosely && c.Loose()
	return in && (r.victims == nil || slices.Contains(r.victims, c.Victim)) && (r.faults == nil || slices.Contains(r.faults, c.Fault))
}

var (
	tasks  = []Victim{Chief, Worker, Server}
	needed = []Victim{Chief, Server}
)

// loosely stands for all modes in which workers do not wait for each other.
const loosely = "loosely"

// oneCopy is the checkpoint of which a copy was on its way to the lost worker.
const oneCopy = 1

// without begins the words that a job goes on without its second worker.
const without = "the job goes on without "

// promises: the first row that has the victim and the fault holds.
var promises = []row{
	{"allreduce", []Victim{Server}, nil, Promise{why: "with nothing to own a server ends as soon as training begins"}},

	{"", tasks, []Fault{Kill, OOM}, Promise{Outcome: Recovers, Within: soon, Says: []string{"VICTIM", "HOST", "signal 9"}}},
	{"", tasks, []Fault{Stop}, Promise{Outcome: Recovers, Within: silent, Says: []string{"VICTIM", "HOST"}}},
	{"", tasks, []Fault{Exit}, Promise{Outcome: Recovers, Within: soon, Says: []string{"VICTIM", "HOST", "exited with status 0"}}},
	{"", tasks, []Fault{Reset}, Promise{Outcome: Recovers, Within: soon, Says: []string{" on h"}}},
	// If a second copy of a checkpoint is changed, the job goes on without the checkpoint.
	{"", tasks, []Fault{Corrupt}, Promise{Outcome: Either, Within: soon, Unsaved: oneCopy}},
	{"", tasks, []Fault{Cut, Mute, Deaf, Power}, Promise{Outcome: Recovers, Within: twoLease, Says: []string{"host HOST"}}},
	{"", tasks, []Fault{Slow}, Promise{Outcome: GoesOn, Within: silent}},
	{"", tasks, []Fault{Full}, Promise{Outcome: GoesOn, Within: soon, Warns: []string{" on ADDRESS", "no space left"}}},
	{"", tasks, []Fault{Fsync}, Promise{Outcome: GoesOn, Within: soon, Warns: []string{" on ADDRESS", "checkpoint.sync: an error"}}},

	{"", []Victim{Supervisor, Watchdog, Agent}, []Fault{Kill}, Promise{Outcome: Recovers, Within: silent, Says: []string{"host HOST"}}},
	{"", []Victim{Supervisor}, []Fault{OOM}, Promise{Outcome: Recovers, Within: silent, Says: []string{"host HOST"}}},
	{"", []Victim{Supervisor, Agent}, []Fault{Stop}, Promise{Outcome: Recovers, Within: twoLease, Says: []string{"host HOST"}}},
	{"", []Victim{Watchdog}, []Fault{Stop}, Promise{Outcome: GoesOn, Within: silent}},
	{"", []Victim{Agent}, []Fault{Reset}, Promise{Outcome: GoesOn, Within: silent, Says: []string{"host HOST: connection lost"}}},
	{"", []Victim{Supervisor, Watchdog, Agent}, []Fault{Cut, Mute, Deaf, Slow, Power}, Promise{why: "the host's network and power: the cells of the worker there"}},
	{"", []Victim{Supervisor, Watchdog, Agent}, []Fault{Exit}, Promise{why: "no program of a user's"}},
	{"", []Victim{Supervisor, Watchdog, Agent}, []Fault{Full, Fsync}, Promise{why: "agents write no checkpoints"}},
	{"", []Victim{Supervisor, Watchdog, Agent, Launcher}, []Fault{Corrupt}, Promise{why: "SSH refuses what was changed on its way; the cell is reset"}},
	{"", []Victim{Supervisor, Watchdog}, []Fault{Reset}, Promise{why: "the agent's connections: its own cell"}},
	{"", []Victim{Watchdog, Agent}, []Fault{OOM}, Promise{why: "as kill; tried on the supervisor"}},

	{loosely, []Victim{Worker}, []Fault{Kill}, Promise{Outcome: GoesOn, Within: soon, Unsaved: oneCopy, Says: []string{"VICTIM", "HOST", "signal 9", without}}},
	{loosely, []Victim{Worker}, []Fault{Stop}, Promise{Outcome: GoesOn, Within: silent, Unsaved: oneCopy, Says: []string{"VICTIM", "HOST", "it froze", without}}},
	{loosely, []Victim{Worker}, []Fault{Exit}, Promise{Outcome: GoesOn, Within: soon, Unsaved: oneCopy, Says: []string{"VICTIM", "HOST", "exited with status 0", without}}},
	{loosely, []Victim{Worker}, []Fault{Reset}, Promise{Outcome: GoesOn, Within: soon, Unsaved: oneCopy, Says: []string{"VICTIM", "HOST", without}}},
	{loosely, []Victim{Worker}, []Fault{Cut, Power}, Promise{Outcome: GoesOn, Within: silent, Unsaved: oneCopy, Says: []string{"host HOST", without + "worker:1"}}},
	{loosely, []Victim{Supervisor}, []Fault{Kill, Stop}, Promise{Outcome: GoesOn, Within: silent, Unsaved: oneCopy, Says: []string{"HOST", without}}},
	{loosely, needed, []Fault{Kill}, Promise{Outcome: Recovers, Within: soon, Says: []string{"VICTIM", "HOST", "signal 9"}}},
	{loosely, needed, []Fault{Stop}, Promise{Outcome: Recovers, Within: silent, Says: []string{"VICTIM", "HOST"}}},
	{loosely, needed, []Fault{Exit}, Promise{Outcome: Recovers, Within: soon, Says: []string{"VICTIM", "HOST", "exited with status 0"}}},
	{loosely, []Victim{Chief}, []Fault{Reset}, Promise{Outcome: Recovers, Within: soon, Says: []string{" on h"}}},
	// The connection may have been that of a worker that nobody needs.
	{loosely, []Victim{Server}, []Fault{Reset}, Promise{Outcome: Either, Within: soon, Unsaved: oneCopy, Says: []string{" on h"}}},
	{loosely, needed, []Fault{Cut, Power}, Promise{Outcome: Recovers, Within: twoLease, Says: []string{"host HOST"}}},
	{loosely, needed, []Fault{Again}, Promise{Outcome: Recovers, Within: silent, Says: []string{"2 of 3)", "VICTIM", "HOST", "signal 9"}}},
	{loosely, []Victim{ScaledChief, ScaledWorker}, []Fault{Kill}, Promise{Outcome: Either, Within: twoLease, Unsaved: oneCopy}},
	{loosely, []Victim{Joining}, []Fault{Cut}, Promise{Outcome: Either, Within: twoLease, Unsaved: oneCopy}},
	// backup:1 needs two workers, and only one may be left.
	{"async", []Victim{ScaledWorker}, []Fault{Cut}, Promise{Outcome: Either, Within: twoLease, Unsaved: oneCopy}},
	{"ssp", []Victim{ScaledChief}, []Fault{Power}, Promise{Outcome: Either, Within: twoLease, Unsaved: oneCopy}},
	{loosely, nil, nil, Promise{why: "as where workers wait for each other: a few cells show what the modes are about"}},

	{"", []Victim{Launcher}, []Fault{Kill, OOM, Power}, Promise{Outcome: Ends, Within: Lease + 2*time.Second, Codes: []int{137}}},
	// The launcher resumes if it can within --wait-host.
	{"", []Victim{Launcher}, []Fault{Stop, Cut, Mute, Deaf}, Promise{Outcome: Recovers, Within: twoLease, Says: []string{"host h"}}},
	{"", []Victim{Launcher}, []Fault{Slow, Reset}, Promise{Outcome: GoesOn, Within: silent}},
	{"", []Victim{Launcher}, []Fault{Exit, Full, Fsync}, Promise{why: "the launcher computes nothing and writes no checkpoints"}},

	{"", tasks, []Fault{Starting, Again}, Promise{Outcome: Recovers, Within: silent, Says: []string{"2 of 3)", "VICTIM", "HOST", "signal 9"}}},
	{"", []Victim{Worker}, []Fault{Regrouping}, Promise{Outcome: Recovers, Within: twoLease, Says: []string{"without h3"}}},
	{"", nil, []Fault{Starting, Again, Regrouping}, Promise{why: "two faults: a few cells"}},
	// plx scale may succeed or not, and reports which.
	{"", []Victim{ScaledChief, ScaledWorker}, []Fault{Kill, Cut, Power}, Promise{Outcome: Either, Within: twoLease}},
	{"", []Victim{Joining}, []Fault{Cut, Power}, Promise{Outcome: Either, Within: twoLease}},
	{"", []Victim{ScaledChief, ScaledWorker, Joining}, nil, Promise{why: "a change of hosts that meets a fault: a few cells"}},

	{"", []Victim{Departed}, []Fault{Kill, Cut, Power}, Promise{Outcome: GoesOn, Within: silent}},
	{"", []Victim{Stray}, []Fault{Kill}, Promise{Outcome: Recovers, Within: soon, Says: []string{"1 restart"}}},
	{"", []Victim{Stray}, []Fault{Power}, Promise{Outcome: Recovers, Within: twoLease, Says: []string{"1 restart"}}},
	{"", []Victim{Seat}, []Fault{Kill, Power}, Promise{Outcome: Ends, Within: Lease + 2*time.Second, Codes: []int{125}, Says: []string{"HOST"}}},
	{"", []Victim{Departed, Stray, Seat}, nil, Promise{why: "as with a launcher: a few cells show that none is needed"}},
}

// Promise is the cell's.
func (c Cell) Promise() Promise {
	for _, r := range promises {
		if r.holds(c) {
			return r.Promise
		}
	}
	return Promise{why: "nobody has said what is to become of it"}
}
