package main

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
	Arch   string
	Victim victim
	Fault  fault
}

// victim is whom a fault befalls.
type victim string

// The victims. The first three are tasks, on a host each; the next three are
// processes of the agent on the worker's host. What is launched with --detach
// has no launcher: there the departed is who follows the job, the stray worker
// one of its tasks, and the seat is the agent that conducts it, on the chief's
// host. The last three are victims while the job is scaled from the first two
// hosts to all: two of its tasks, and the host that joins.
const (
	chief        victim = "chief"
	worker       victim = "worker"
	server       victim = "server"
	supervisor   victim = "supervisor"
	guardian     victim = "guardian"
	agent        victim = "agent" // both processes at once
	launching    victim = "launcher"
	departed     victim = "detached-launcher"
	stray        victim = "detached-worker"
	seat         victim = "detached-seat"
	scaledChief  victim = "scaled-chief"
	scaledWorker victim = "scaled-worker"
	joining      victim = "scaled-joining"
)

var victims = []victim{chief, worker, server, supervisor, guardian, agent, launching, departed, stray, seat,
	scaledChief, scaledWorker, joining}

// detached says whether the victim's job has no launcher.
func (v victim) detached() bool { return strings.HasPrefix(string(v), "detached-") }

// scaled says whether the victim's job is being scaled.
func (v victim) scaled() bool { return strings.HasPrefix(string(v), "scaled-") }

// fault is what befalls it.
type fault string

// The faults. Those of the network befall the victim's host. The last three are
// two faults, the second while the job recovers from the first.
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

var faults = []fault{kill, stop, exit, oom, cut, mute, deaf, slow, reset, corrupt, full, fsync, power, starting, again, regrouping}

// described says what a fault is.
var described = map[fault]string{
	kill:    "SIGKILL",
	stop:    "SIGSTOP",
	exit:    "exit status 0 in the middle of the run",
	oom:     "killed by the kernel because memory has run out",
	cut:     "network link down",
	mute:    "one-way cut: what it sends vanishes",
	deaf:    "one-way cut: what is sent to it vanishes",
	slow:    "slow link",
	reset:   "connection reset",
	corrupt: "a bit of a frame's header is another",
	full:    "no space left on the disk of the checkpoints",
	fsync:   "fsync of a checkpoint's file fails",
	power:   "power off",

	starting:   "SIGKILL, and again as soon as it runs anew",
	again:      "SIGKILL, and again behind the first step of the next generation",
	regrouping: "SIGKILL, and the link of the last host goes down before the next generation starts",
}

var architectures = []string{"ps", "allreduce", "hybrid"}

// modes are those in which workers do not wait for each other, and what --sync
// is then. They train in ps.
var (
	modes = []string{"async", "ssp", "backup"}
	syncs = map[string]string{"async": "async", "ssp": fmt.Sprint("ssp:", bound), "backup": fmt.Sprint("backup:", spares)}
)

// How far workers may be apart in ssp, and how many are not waited for in
// backup.
const (
	bound  = 2
	spares = 1
)

// loose says that workers do not wait for each other.
func (c Cell) loose() bool { return syncs[c.Arch] != "" }

// Name is the cell's path, such as ps/worker/kill.
func (c Cell) Name() string { return fmt.Sprintf("%s/%s/%s", c.Arch, c.Victim, c.Fault) }

// every is the whole grid, with the cells that cannot be.
func every() []Cell {
	var all []Cell
	for _, a := range slices.Concat(architectures, modes) {
		for _, v := range victims {
			for _, f := range faults {
				all = append(all, Cell{a, v, f})
			}
		}
	}
	return all
}

// grid is all that can be tried.
func grid() []Cell {
	return slices.DeleteFunc(every(), func(c Cell) bool { return c.promise().outcome == none })
}

// quick are the cells for a minute.
func quick() []Cell {
	return []Cell{
		{"ps", server, kill},
		{"hybrid", chief, kill},
		{"allreduce", worker, stop},
		{"hybrid", worker, reset},
		{"ps", worker, full},
		{"allreduce", worker, power},
		{"hybrid", launching, kill},
		{"async", worker, kill},
		{"ssp", server, kill},
		{"backup", worker, reset},
	}
}

// every so many steps a checkpoint is made, and there are so many steps.
const (
	checkpointEvery = 7
	steps           = 80
)

// target is the step after which the fault comes: one in the first half that
// is no checkpoint's, and whose successor is none's. It follows from the seed
// and the cell's name.
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

// A step takes so long at least: where something has to happen before the job
// is done that takes a lease, longer.
const (
	fast      = 30 * time.Millisecond
	unhurried = 150 * time.Millisecond
)

func (c Cell) pace() time.Duration {
	slow := c.Victim == launching || c.Victim == seat || c.Victim.scaled() || c.Victim.task() == "" && c.Fault == stop
	if c.loose() { // nobody waits for who is lost, and they must not be done before that is noticed
		slow = c.Victim.scaled() || c.promise().outcome == goesOn && slices.Contains([]fault{stop, cut, power}, c.Fault)
	}
	if slow {
		return unhurried
	}
	return fast
}
