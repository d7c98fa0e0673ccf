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
	Victim victim
	Fault  fault
}

// fault is what befalls a victim.
type fault string

// The faults. Those of the network befall the victim's host. The last three are two
// faults, the second while the job recovers from the first.
const (
	kill    fault = "kill"
	stop    fault = "stop"
	exit    fault = "exit"
	oom     fault = "oom"
	cut     fault = "cut"
	mute    fault = "mute"
	deaf    fault = "deaf"
	slow    fault = "slow"
	reset   fault = "reset"
	corrupt fault = "corrupt"
	full    fault = "full"
	fsync   fault = "fsync"
	power   fault = "power"

	starting   fault = "starting"
	again      fault = "again"
	regrouping fault = "regrouping"
)

// faults are all, with their names in the report.
var faults = []struct {
	fault
	title string
}{
	{kill, "SIGKILL"},
	{stop, "SIGSTOP"},
	{exit, "exit status 0 in the middle of the run"},
	{oom, "killed by the kernel because memory has run out"},
	{cut, "network link down"},
	{mute, "one-way cut: what it sends vanishes"},
	{deaf, "one-way cut: what is sent to it vanishes"},
	{slow, "slow link"},
	{reset, "connection reset"},
	{corrupt, "a bit of what it sends is changed on its way"},
	{full, "no space left on the disk of the checkpoints"},
	{fsync, "fsync of a checkpoint's file fails"},
	{power, "power off"},
	{starting, "SIGKILL, and again as soon as it runs anew"},
	{again, "SIGKILL, and again after the first step of the next generation"},
	{regrouping, "SIGKILL, and the link of the last host goes down before the next generation starts"},
}

// victim is whom a fault befalls.
type victim string

// The victims. The first three are tasks, on a host each; the next three are
// processes of the agent on the worker's host. A detached job has no launcher:
// its departed victim follows the job, its stray victim is one of its tasks, and
// its seat is the agent on the chief's host that drives it. The last three are
// victims while the job is scaled from the first two hosts to all: two of its
// tasks, and the host that joins.
const (
	chief        victim = "chief"
	worker       victim = "worker"
	server       victim = "server"
	supervisor   victim = "supervisor"
	watchdog     victim = "watchdog"
	agent        victim = "agent" // both processes at once
	launching    victim = "launcher"
	departed     victim = "detached-launcher"
	stray        victim = "detached-worker"
	seat         victim = "detached-seat"
	scaledChief  victim = "scaled-chief"
	scaledWorker victim = "scaled-worker"
	joining      victim = "scaled-joining"
)

// person is what the grid knows about a victim.
type person struct {
	victim
	title string // name of the victim in the report
	task  string // name of the task if all workers wait for each other; "": the victim is no task
	host  int    // index of the victim's host; -1: the launching machine
}

var people = []person{
	{chief, "The chief (worker:0), or its host", "worker:0", 0},
	{worker, "Another worker, or its host", "worker:1", 1},
	{server, "A parameter server, or its host", "ps:2", 2},
	{supervisor, "A host's supervisor", "", 1},
	{watchdog, "A host's watchdog", "", 1},
	{agent, "Supervisor and watchdog of a host, or the connection to them", "", 1},
	{launching, "The launcher, or its machine", "", -1},
	{departed, "Whoever follows a detached job, or their machine", "", -1},
	{stray, "A worker of a detached job, or its host", "worker:1", 1},
	{seat, "The agent that drives a detached job, or its host", "", 0},
	{scaledChief, "The chief, or its host, while the job is scaled", "worker:0", 0},
	{scaledWorker, "Another worker, or its host, while the job is scaled", "worker:1", 1},
	{joining, "The host that joins while the job is scaled", "", 2},
}

func (v victim) person() person {
	return people[slices.IndexFunc(people, func(p person) bool { return p.victim == v })]
}

// detached reports whether the victim's job has no launcher.
func (v victim) detached() bool { return strings.HasPrefix(string(v), "detached-") }

// scaled reports whether the victim's job is being scaled.
func (v victim) scaled() bool { return strings.HasPrefix(string(v), "scaled-") }

// task is the victim's name as a task, "" if it is none.
func (c Cell) task() string {
	if c.loose() && c.Victim == server {
		return "ps:1"
	}
	return c.Victim.person().task
}

var architectures = []string{"ps", "allreduce", "hybrid"}

// modes are those in which workers do not wait for each other, and syncs what
// --sync is then. They train in ps.
var (
	modes = []string{"async", "ssp", "backup"}
	syncs = map[string]string{"async": "async", "ssp": fmt.Sprint("ssp:", bound), "backup": fmt.Sprint("backup:", spares)}
)

// loose reports whether the cell's workers do not wait for each other.
func (c Cell) loose() bool { return syncs[c.Arch] != "" }

// Name is the cell's path, such as ps/worker/kill.
func (c Cell) Name() string { return fmt.Sprintf("%s/%s/%s", c.Arch, c.Victim, c.Fault) }

// every returns all combinations, with the cells that cannot be.
func every() []Cell {
	var all []Cell
	for _, a := range slices.Concat(architectures, modes) {
		for _, p := range people {
			for _, f := range faults {
				all = append(all, Cell{a, p.victim, f.fault})
			}
		}
	}
	return all
}

// grid returns the cells that can be tried.
func grid() []Cell {
	return slices.DeleteFunc(every(), func(c Cell) bool { return c.promise().outcome == none })
}

// A run has so many steps, with a checkpoint after every seventh.
const (
	checkpointEvery = 7
	steps           = 80
)

// target is the step after which the fault comes. It follows from the seed and the
// cell's name, lies in the first half of the run, and neither it nor its successor
// is a checkpoint's.
func (c Cell) target(seed uint64) int {
	name := fnv.New64a()
	name.Write([]byte(c.Name())) // a hash never fails to write
	random := rand.New(rand.NewPCG(seed, name.Sum64()))
	for {
		step := 2*checkpointEvery + random.IntN(steps/2-2*checkpointEvery)
		if step%checkpointEvery != 0 && (step+1)%checkpointEvery != 0 {
			return step
		}
	}
}

// The shortest time of a step: unhurried if the job must outlast a lease.
const (
	fast      = 30 * time.Millisecond
	unhurried = 150 * time.Millisecond
)

func (c Cell) pace() time.Duration {
	slow := c.Victim == launching || c.Victim == seat || c.Victim.scaled() || c.Victim.person().task == "" && c.Fault == stop
	if c.loose() { // nobody waits for a lost worker, and the others must not be done before the loss is noticed
		slow = c.Victim.scaled() || c.promise().outcome == goesOn && slices.Contains([]fault{stop, cut, power}, c.Fault)
	}
	if slow {
		return unhurried
	}
	return fast
}
