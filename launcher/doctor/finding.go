package doctor

import (
	"cmp"
	"slices"
	"strings"
)

// Level says what a finding means for a launch.
type Level string

// The levels, the worst first.
const (
	Error   Level = "error"   // a launch on the host fails
	Warning Level = "warning" // a launch works, and programs may meet it later
)

// Check is what was looked at.
type Check string

// The checks, in the order in which findings are printed.
const (
	Connection Check = "connection" // name, route, TCP, SSH's greeting
	HostKey    Check = "host key"
	Login      Check = "login"
	Shell      Check = "shell" // of the login, and its start-up files
	Platform   Check = "platform"
	Home       Check = "home"
	Tmp        Check = "tmp"
	Shm        Check = "shm"    // memory that processes share, /dev/shm
	Limits     Check = "limits" // of open files and processes
	Clock      Check = "clock"
	GPUs       Check = "gpus" // and their driver
	Machine    Check = "machine"
	Agent      Check = "agent"     // it cannot be sent, or does not run
	Processes  Check = "processes" // how a job's processes are ended
	Leftovers  Check = "leftovers" // of earlier jobs
	Network    Check = "network"   // data addresses and interfaces
	Python     Check = "python"
)

var order = []Check{Connection, HostKey, Login, Shell, Platform, Home, Tmp, Shm, Limits, Clock, GPUs, Machine, Agent, Processes, Leftovers, Network, Python}

// Finding is one thing that is wrong, on one host or on several.
type Finding struct {
	Level  Level    `json:"level"`
	Check  Check    `json:"check"`
	Hosts  []string `json:"hosts"` // labels of the hosts, in the order of the resource file
	Text   string   `json:"text"`
	Remedy string   `json:"remedy"`
}

// here is the label of the machine that doctor runs on.
const here = "this machine"

// group puts equal findings of several hosts together and sorts them: errors first, then
// by check, then by host. labels has all hosts in their order.
func group(all []Finding, labels []string) []Finding {
	grouped := []Finding{} // JSON writes nil as null
	for _, f := range all {
		i := slices.IndexFunc(grouped, func(g Finding) bool {
			return g.Level == f.Level && g.Check == f.Check && g.Text == f.Text && g.Remedy == f.Remedy
		})
		if i < 0 {
			f.Hosts = slices.Clone(f.Hosts)
			grouped = append(grouped, f)
			continue
		}
		for _, host := range f.Hosts {
			if !slices.Contains(grouped[i].Hosts, host) {
				grouped[i].Hosts = append(grouped[i].Hosts, host)
			}
		}
	}
	place := func(host string) int { return slices.Index(labels, host) } // this machine is first
	for _, f := range grouped {
		slices.SortStableFunc(f.Hosts, func(a, b string) int { return place(a) - place(b) })
	}
	slices.SortStableFunc(grouped, func(a, b Finding) int {
		return cmp.Or(strings.Compare(string(a.Level), string(b.Level)), // "error" is before "warning"
			slices.Index(order, a.Check)-slices.Index(order, b.Check), place(a.Hosts[0])-place(b.Hosts[0]))
	})
	return grouped
}
