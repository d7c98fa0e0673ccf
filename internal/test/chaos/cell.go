// Package chaos is the oracle of the fault grid, which package e2e tries on test hosts:
// which cells there are (a fault of a victim in an architecture), what must become of
// each, and whether what plx and the tasks print shows that it did. The weights at the
// end must be the same bits as without the fault. If workers do not wait for each other
// there are no such bits: then Audit counts how often every gradient was applied.
//
// What must become of a cell stands in promise.go before anybody tries it. A fault
// comes after a step that follows from a seed and the cell's name, as soon as the chief
// reports that step.
package chaos

import (
	"fmt"
	"hash/fnv"
	"math/rand/v2"
	"slices"
	"strings"
	"time"
)

// Cell is one fault of one victim in one architecture, or in one mode in which
// workers do not wait for each other.
type Cell struct {
	Arch   string // architecture, or mode in which workers do not wait for each other
	Victim Victim
	Fault  Fault
}

// Fault is what befalls a victim.
type Fault string

// The faults. Those of the network befall the victim's host. The last three are two
// faults, the second while the job recovers from the first.
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

// faults are all, with their names in the report.
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

// Victim is whom a fault befalls.
type Victim string

// The victims. The first three are tasks, on a host each; the next three are
// processes of the agent on the worker's host. A detached job has no launcher:
// its departed victim follows the job, its stray victim is one of its tasks, and
// its seat is the agent on the chief's host that drives it. The last three are
// victims while the job is scaled from the first two hosts to all: two of its
// tasks, and the host that joins.
const (
	Chief        Victim = "chief"
	Worker       Victim = "worker"
	Server       Victim = "server"
	Supervisor   Victim = "supervisor"
	Watchdog     Victim = "watchdog"
	Agent        Victim = "agent" // both processes at once
	Launcher     Victim = "launcher"
	Departed     Victim = "detached-launcher"
	Stray        Victim = "detached-worker"
	Seat         Victim = "detached-seat"
	ScaledChief  Victim = "scaled-chief"
	ScaledWorker Victim = "scaled-worker"
	Joining      Victim = "scaled-joining"
)

// person is what the grid knows about a victim.
type person struct {
	Victim
	title string // name of the victim in the report
	task  string // name of the task if all workers wait for each other; "": the victim is no task
	host  int    // index of the victim's host; -1: the launching machine
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

// Host is the index of the victim's host; -1 is the launching machine.
func (v Victim) Host() int { return v.person().host }

// Detached reports whether the victim's job has no launcher.
func (v Victim) Detached() bool { return strings.HasPrefix(string(v), "detached-") }

// Scaled reports whether the victim's job is being scaled.
func (v Victim) Scaled() bool { return strings.HasPrefix(string(v), "scaled-") }

// Task is the victim's name as a task, "" if it is none.
func (c Cell) Task() string {
	if c.Loose() && c.Victim == Server {
		return "ps:1"
	}
	return c.Victim.person().task
}

// Architectures are those in which workers wait for each other.
var Architectures = []string{"ps", "allreduce", "hybrid"}

// modes are those in which workers do not wait for each other, and Syncs is --sync in
// each. They train in ps.
var (
	modes = []string{"async", "ssp", "backup"}
	Syncs = map[string]string{"async": "async", "ssp": fmt.Sprint("ssp:", bound), "backup": fmt.Sprint("backup:", spares)}
)

// Loose reports whether the cell's workers do not wait for each other.
func (c Cell) Loose() bool { return Syncs[c.Arch] != "" }

// Name is the cell's path, such as ps/worker/kill.
func (c Cell) Name() string { return fmt.Sprintf("%s/%s/%s", c.Arch, c.Victim, c.Fault) }

// every returns all combinations, with the cells that cannot be.
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

// Grid returns the cells that can be tried.
func Grid() []Cell {
	return slices.DeleteFunc(every(), func(c Cell) bool { return c.Promise().Outcome == none })
}

// A run has so many steps, with a checkpoint after every seventh.
const (
	CheckpointEvery = 7
	Steps           = 80
)

// Target is the step after which the fault comes. It follows from the seed and the
// cell's name, lies in the first half of the run, and neither it nor its successor
// is a checkpoint's.
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

// The shortest time of a step: unhurried if the job must outlast a lease.
const (
	Fast      = 30 * time.Millisecond
	unhurried = 150 * time.Millisecond
)

// Pace is the shortest time of a step of the cell's job.
func (c Cell) Pace() time.Duration {
	slow := c.Victim == Launcher || c.Victim == Seat || c.Victim.Scaled() || c.Victim.person().task == "" && c.Fault == Stop
	if c.Loose() { // nobody waits for a lost worker, and the others must not be done before the loss is noticed
		slow = c.Victim.Scaled() || c.Promise().Outcome == GoesOn && slices.Contains([]Fault{Stop, Cut, Power}, c.Fault)
	}
	if slow {
		return unhurried
	}
	return Fast
}
