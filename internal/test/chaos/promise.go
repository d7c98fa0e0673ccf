package chaos

import (
	"slices"
	"time"
)

// Outcome is what must happen to a job after a fault.
type Outcome string

// The outcomes. In every case, no process of the job may be left on any host.
const (
	// Recovers: another generation resumes from a checkpoint, the job exits
	// with status 0, and its weights are bit-identical to those of a run
	// without the fault.
	Recovers Outcome = "recovers"
	// GoesOn: the job needs no other generation, exits with status 0 and has
	// the same weights as without the fault.
	GoesOn Outcome = "goes on"
	// Either: the job may do what Recovers or what GoesOn requires.
	Either Outcome = "recovers or goes on"
	// Ends: the job fails with an error that names the host and the cause. The
	// next launch of the same job resumes from a checkpoint and ends with the
	// same weights as without the fault.
	Ends Outcome = "ends"
	// none: the grid does not contain this cell.
	none Outcome = ""
)

// Promise is the required result of a cell. It was written before the cell was
// first run.
type Promise struct {
	Outcome Outcome       // none means that the grid does not contain the cell; the field why gives the reason
	Within  time.Duration // longest allowed time from the fault to the next step; for outcome Ends, to the end of the job
	Says    []string      // strings that a single line of plx after the fault must all contain, with VICTIM and HOST replaced by the victim's names; nil requires nothing
	Warns   []string      // strings that a single line of a task after the fault must all contain, with HOST and ADDRESS replaced by those of the victim; nil requires nothing
	Unsaved int           // largest number of checkpoints that may fail; used only if Warns is empty
	Codes   []int         // allowed exit statuses of plx for outcome Ends; for other outcomes only 0 is allowed
	why     string        // reason why the grid does not contain the cell; "" if the grid contains it
}

// Lease is the lease of all jobs of the grid: plx declares a host lost after
// this time without a message. It is the shortest lease that plx accepts.
const Lease = 5 * time.Second

// Time limits. soon is for processes that have ended, which plx notices at
// once. silent is for processes that hang, which plx notices after a timeout.
// twoLease is for lost hosts: plx declares a host lost after one lease, and
// the host's processes end after a second lease.
const (
	soon     = 15 * time.Second
	silent   = 20 * time.Second
	twoLease = 2*Lease + 20*time.Second
)

// row assigns a promise to all cells with given victims and faults.
type row struct {
	arch    string   // an architecture or mode; "" means every architecture, and the constant loosely means every mode
	victims []Victim // nil means all victims
	faults  []Fault  // nil means all faults
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

// oneCopy is the number of checkpoints that may fail because one of their
// files was being copied to the lost worker.
const oneCopy = 1

// without is the beginning of the message with which plx continues the job
// without a lost worker.
const without = "the job goes on without "

// promises lists the promises of all cells. The first row that matches a cell
// applies.
var promises = []row{
	{"allreduce", []Victim{Server}, nil, Promise{why: "with nothing to own a server ends as soon as training begins"}},

	{"", tasks, []Fault{Kill, OOM}, Promise{Outcome: Recovers, Within: soon, Says: []string{"VICTIM", "HOST", "signal 9"}}},
	{"", tasks, []Fault{Stop}, Promise{Outcome: Recovers, Within: silent, Says: []string{"VICTIM", "HOST"}}},
	{"", tasks, []Fault{Exit}, Promise{Outcome: Recovers, Within: soon, Says: []string{"VICTIM", "HOST", "exited with status 0"}}},
	{"", tasks, []Fault{Reset}, Promise{Outcome: Recovers, Within: soon, Says: []string{" on h"}}},
	// If the fault corrupts the second copy of a checkpoint's file, that
	// checkpoint fails and the job continues.
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
	// The fault may reset the connection of a worker that the job can lose and
	// continue without.
	{loosely, []Victim{Server}, []Fault{Reset}, Promise{Outcome: Either, Within: soon, Unsaved: oneCopy, Says: []string{" on h"}}},
	{loosely, needed, []Fault{Cut, Power}, Promise{Outcome: Recovers, Within: twoLease, Says: []string{"host HOST"}}},
	{loosely, needed, []Fault{Again}, Promise{Outcome: Recovers, Within: silent, Says: []string{"2 of 3)", "VICTIM", "HOST", "signal 9"}}},
	{loosely, []Victim{ScaledChief, ScaledWorker}, []Fault{Kill}, Promise{Outcome: Either, Within: twoLease, Unsaved: oneCopy}},
	{loosely, []Victim{Joining}, []Fault{Cut}, Promise{Outcome: Either, Within: twoLease, Unsaved: oneCopy}},
	// The cells of the next two rows run in one mode each. backup:1 needs at
	// least two workers, and the fault may leave only one.
	{"async", []Victim{ScaledWorker}, []Fault{Cut}, Promise{Outcome: Either, Within: twoLease, Unsaved: oneCopy}},
	{"ssp", []Victim{ScaledChief}, []Fault{Power}, Promise{Outcome: Either, Within: twoLease, Unsaved: oneCopy}},
	{loosely, nil, nil, Promise{why: "as where workers wait for each other: a few cells show what the modes are about"}},

	{"", []Victim{Launcher}, []Fault{Kill, OOM, Power}, Promise{Outcome: Ends, Within: Lease + 2*time.Second, Codes: []int{137}}},
	// If the launcher can resume the job within --wait-host, it does so.
	{"", []Victim{Launcher}, []Fault{Stop, Cut, Mute, Deaf}, Promise{Outcome: Recovers, Within: twoLease, Says: []string{"host h"}}},
	{"", []Victim{Launcher}, []Fault{Slow, Reset}, Promise{Outcome: GoesOn, Within: silent}},
	{"", []Victim{Launcher}, []Fault{Exit, Full, Fsync}, Promise{why: "the launcher computes nothing and writes no checkpoints"}},

	{"", tasks, []Fault{Starting, Again}, Promise{Outcome: Recovers, Within: silent, Says: []string{"2 of 3)", "VICTIM", "HOST", "signal 9"}}},
	{"", []Victim{Worker}, []Fault{Regrouping}, Promise{Outcome: Recovers, Within: twoLease, Says: []string{"without h3"}}},
	{"", nil, []Fault{Starting, Again, Regrouping}, Promise{why: "two faults: a few cells"}},
	// plx scale may succeed or fail. It must report whether it has succeeded.
	{"", []Victim{ScaledChief, ScaledWorker}, []Fault{Kill, Cut, Power}, Promise{Outcome: Either, Within: twoLease}},
	{"", []Victim{Joining}, []Fault{Cut, Power}, Promise{Outcome: Either, Within: twoLease}},
	{"", []Victim{ScaledChief, ScaledWorker, Joining}, nil, Promise{why: "a change of hosts that meets a fault: a few cells"}},

	{"", []Victim{Departed}, []Fault{Kill, Cut, Power}, Promise{Outcome: GoesOn, Within: silent}},
	{"", []Victim{Stray}, []Fault{Kill}, Promise{Outcome: Recovers, Within: soon, Says: []string{"1 restart"}}},
	{"", []Victim{Stray}, []Fault{Power}, Promise{Outcome: Recovers, Within: twoLease, Says: []string{"1 restart"}}},
	{"", []Victim{Seat}, []Fault{Kill, Power}, Promise{Outcome: Ends, Within: Lease + 2*time.Second, Codes: []int{125}, Says: []string{"HOST"}}},
	{"", []Victim{Departed, Stray, Seat}, nil, Promise{why: "as with a launcher: a few cells show that none is needed"}},
}

// Promise returns the required result of the cell.
func (c Cell) Promise() Promise {
	for _, r := range promises {
		if r.holds(c) {
			return r.Promise
		}
	}
	return Promise{why: "nobody has said what is to become of it"}
}
