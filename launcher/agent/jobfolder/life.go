//go:build linux

package jobfolder

import (
	"os"
	"strings"
	"sync"

	"github.com/plx-run/plx/launcher/agent/process"
	"github.com/plx-run/plx/launcher/protocol"
)

// Life says whether the agent that wrote a state still runs.
type Life int

// What is known of an agent.
const (
	Dead    Life = iota // neither watchdog nor supervisor runs
	Living              // at least one of them runs
	Unknown             // it runs, if at all, on another machine that shares this home
)

// LifeOf tells from its state whether an agent runs.
func LifeOf(s protocol.State) Life {
	if s.Machine != Machine() {
		return elsewhere(s)
	}
	if process.Alive(s.Watchdog, s.WatchdogStart) || process.Alive(s.Supervisor, s.SupervisorStart) {
		return Living
	}
	return Dead
}

// elsewhere judges an agent that this machine has not started since its last
// start.
func elsewhere(s protocol.State) Life {
	host, _, _ := strings.Cut(s.Machine, " ")
	if s.Phase == protocol.Over || host == Host() && boot(s.Machine) != boot(Machine()) {
		return Dead // this machine was restarted since
	}
	return Unknown
}

// Machine names this machine, from its start to its end, and the process table
// that this process sees: host name, boot id and pid namespace.
var Machine = sync.OnceValue(func() string {
	name, _ := os.Hostname() // what cannot be read is the same every time
	bootID, _ := os.ReadFile("/proc/sys/kernel/random/boot_id")
	table, _ := os.Readlink("/proc/self/ns/pid")
	return name + " " + strings.TrimSpace(string(bootID)) + " " + table
})

// Host is the host name of this machine, the first word of Machine.
func Host() string {
	host, _, _ := strings.Cut(Machine(), " ")
	return host
}

func boot(machine string) string {
	_, rest, _ := strings.Cut(machine, " ")
	id, _, _ := strings.Cut(rest, " ")
	return id
}

// Settled returns the state as it is now: the job part of an agent that is dead
// and recorded no verdict is over.
func Settled(s protocol.State) protocol.State {
	if s.Phase == protocol.Over || LifeOf(s) != Dead {
		return s
	}
	return Ended(s, "the agent is gone: it was killed or the host was restarted")
}
