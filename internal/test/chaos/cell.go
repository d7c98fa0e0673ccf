// Package chaos judges the results of the fault grid, which package e2e runs
// on test hosts. A cell of the grid is one fault that hits one victim in one
// architecture, such as SIGKILL of the chief with parameter servers. The
// package defines the cells and the required outcome of each. It checks
// whether the output of plx and of the tasks shows that outcome. At the end,
// the weights must be bit-identical to those of a run without the fault. If
// workers do not wait for each other, weights are not reproducible. The method
// Audit then checks how often every gradient was applied.
//
// The required outcomes are in promise.go. They were written before a cell was
// first run. The step at which a fault happens depends on a seed and the
// cell's name. The test injects the fault as soon as the chief reports that
// step.
package chaos

import (
	"fmt"
	"hash/fnv"
	"math/rand/v2"
	"slices"
	"strings"
	"time"
)

// Cell is one fault that hits one victim in one architecture.
type Cell struct {
	Arch   string // an architecture such as ps, or a mode such as async, in which workers do not wait for each other
	Victim Victim
	Fault  Fault
}

// Fault is a type of failure that the test injects.
type Fault string

// The faults. Network faults affect the victim's host. The last three consist
// of two faults each: the second one happens while the job recovers from the
// first.
const (
	Kill    Fault = "kill"
	Stop    Fault = "stop"
	Exit    Fault = "exit"
	OOM     Fault = "oom"
	Cut     Fault = "cut"
	Mute    Fault = "mute"
	Deaf    Fault = "deaf"
	Slow    Fault = "slow"
	Reset   Fault = "reset"
	Corrupt Fault = "corrupt"
	Full    Fault = "full"
	Fsync   Fault = "fsync"
	Power   Fault = "power"

	Starting   Fault = "starting"
	Again      Fault = "again"
	Regrouping Fault = "regrouping"
)

// faults lists all faults with their titles in the report.
var faults = []struct {
	Fault
	title string
}{
	{Kill, "SIGKILL"},
	{Stop, "SIGSTOP"},
	{Exit, "exit status 0 in the middle of the run"},
	{OOM, "killed by the kernel because memory ran out"},
	{Cut, "network link down"},
	{Mute, "the network drops all packets from the host"},
	{Deaf, "the network drops all packets to the host"},
	{Slow, "slow link"},
	{Reset, "connection reset"},
	{Corrupt, "one bit of the data that it sends changes on the network"},
	{Full, "the disk of the checkpoints is full"},
	{Fsync, "fsync of a checkpoint's file fails"},
	{Power, "power off"},
	{Starting, "SIGKILL, and again as soon as the restarted process runs"},
	{Again, "SIGKILL, and again after the first step of the next generation"},
	{Regrouping, "SIGKILL, and the network link of h3 goes down before the next generation starts"},
}

// Victim is the task, process or host that a fault hits.
type Victim string

// The victims. Chief, Worker and Server are tasks, each on its own host.
// Supervisor, Watchdog and Agent are processes of the agent on the worker's
// host. Departed, Stray and Seat belong to a detached job, which has no
// launcher. Departed is the client that follows the job's output, Stray is one
// of its tasks, and Seat is the agent on the chief's host, which drives the
// job. The last three victims are hit while plx scales the job from the first
// two hosts to all hosts. They are two of the job's tasks and the host that
// joins.
const (
	Chief        Victim = "chief"
	Worker       Victim = "worker"
	Server       Victim = "server"
	Supervisor   Victim = "supervisor"
	Watchdog     Victim = "watchdog"
	Agent        Victim = "agent" // supervisor and watchdog at the same time
	Launcher     Victim = "launcher"
	Departed     Victim = "detached-launcher"
	Stray        Victim = "detached-worker"
	Seat         Victim = "detached-seat"
	ScaledChief  Victim = "scaled-chief"
	ScaledWorker Victim = "scaled-worker"
	Joining      Victim = "scaled-joining"
)

// person describes a victim.
type person struct {
	Victim
	title string // name of the victim in the report
	task  string // name of the victim's task in the architectures in which workers wait for each other; "" if the victim is not a task
	host  int    // index of the victim's host; -1 means the machine of the launcher
}

var people = []person{
	{Chief, "The chief (worker:0), or its host", "worker:0", 0},
	{Worker, "Another worker, or its host", "worker:1", 1},
	{Server, "A parameter server, or its host", "ps:2", 2},
	{Supervisor, "A host's supervisor (the agent's process that runs tasks)", "", 1},
	{Watchdog, "A host's watchdog (the process that watches the supervisor)", "", 1},
	{Agent, "Supervisor and watchdog of a host, or the connection to them", "", 1},
	{Launcher, "The launcher, or its machine", "", -1},
	{Departed, "The plx process that follows a detached job, or its machine", "", -1},
	{Stray, "A worker of a detached job, or its host", "worker:1", 1},
	{Seat, "The agent that drives a detached job, or its host", "", 0},
	{ScaledChief, "The chief, or its host, while `plx scale` changes the job's hosts", "worker:0", 0},
	{ScaledWorker, "Another worker, or its host, while `plx scale` changes the job's hosts", "worker:1", 1},
	{Joining, "The host that joins while `plx scale` changes the job's hosts", "", 2},
}

func (v Victim) person() person {
	return people[slices.IndexFunc(people, func(p person) bool { return p.Victim == v })]
}

// Host is the index of the victim's host; -1 means the machine of the
// launcher.
func (v Victim) Host() int { return v.person().host }

// Detached reports whether the victim's job has no launcher.
func (v Victim) Detached() bool { return strings.HasPrefix(string(v), "detached-") }

// Scaled reports whether plx scales the victim's job when the fault happens.
func (v Victim) Scaled() bool { return strings.HasPrefix(string(v), "scaled-") }

// Task is the name of the victim's task; "" if the victim is not a task.
func (c Cell) Task() string {
	if c.Loose() && c.Victim == Server {
		return "ps:1"
	}
	return c.Victim.person().task
}

// Architectures are the architectures in which workers wait for each other in
// every step.
var Architectures = []string{"ps", "allreduce", "hybrid"}

// modes are the training modes in which workers do not wait for each other.
// Syncs maps each mode to its value of --sync. All of these jobs use parameter
// servers.
var (
	modes = []string{"async", "ssp", "backup"}
	Syncs = map[string]string{"async": "async", "ssp": fmt.Sprint("ssp:", bound), "backup": fmt.Sprint("backup:", spares)}
)

// Loose reports whether the cell's workers do not wait for each other.
func (c Cell) Loose() bool { return Syncs[c.Arch] != "" }

// Name is the cell's path, such as ps/worker/kill.
func (c Cell) Name() string { return fmt.Sprintf("%s/%s/%s", c.Arch, c.Victim, c.Fault) }

// every returns all combinations of architecture, victim and fault, including
// impossible ones.
func every() []Cell {
	var all []Cell
	for _, a := range slices.Concat(Architectures, modes) {
		for _, p := range people {
			for _, f := range faults {
				all = append(all, Cell{a, p.Victim, f.Fault})
			}
		}
	}
	return all
}

// Grid returns the cells that the test runs.
func Grid() []Cell {
	return slices.DeleteFunc(every(), func(c Cell) bool { return c.Promise().Outcome == none })
}

// A job makes Steps steps and writes a checkpoint after every CheckpointEvery
// steps.
const (
	CheckpointEvery = 7
	Steps           = 80
)

// Target is the step after which the test injects the fault. It depends on the
// seed and the cell's name, and is in the first half of the run. Target
// chooses a step such that no checkpoint is written after it or after the next
// step.
func (c Cell) Target(seed uint64) int {
	name := fnv.New64a()
	name.Write([]byte(c.Name())) // a hash never fails to write
	random := rand.New(rand.NewPCG(seed, name.Sum64()))
	for {
		step := 2*CheckpointEvery + random.IntN(Steps/2-2*CheckpointEvery)
		if step%CheckpointEvery != 0 && (step+1)%CheckpointEvery != 0 {
			return step
		}
	}
}

// Minimum durations of a step. The slower one, unhurried, is for jobs that
// must run for longer than a lease.
const (
	Fast      = 30 * time.Millisecond
	unhurried = 150 * time.Millisecond
)

// Pace is the minimum duration of a step in the cell's job.
func (c Cell) Pace() time.Duration {
	slow := c.Victim == Launcher || c.Victim == Seat || c.Victim.Scaled() || c.Victim.person().task == "" && c.Fault == Stop
	// The workers do not wait for a lost one. Their steps must be so slow that
	// plx notices the loss before they finish.
	if c.Loose() {
		slow = c.Victim.Scaled() || c.Promise().Outcome == GoesOn && slices.Contains([]Fault{Stop, Cut, Power}, c.Fault)
	}
	if slow {
		return unhurried
	}
	return Fast
}
