package doctor

import (
	"cmp"
	"slices"
	"strings"
)

// Level is the severity of a finding.
type Level string

// The levels, the more severe first.
const (
	Error   Level = "error"   // a launch on the host would fail
	Warning Level = "warning" // a launch works, but programs may fail later
)

// Check names the property of a host that a finding (a problem) is about.
type Check string

// The checks, in the order in which findings are printed.
const (
	Connection Check = "connection" // DNS, routing, TCP and the SSH greeting
	HostKey    Check = "host key"
	Login      Check = "login"
	Shell      Check = "shell" // login shell and its start-up files
	Platform   Check = "platform"
	Home       Check = "home"
	Tmp        Check = "tmp"
	Shm        Check = "shm"    // shared memory, /dev/shm
	Limits     Check = "limits" // limits of open files and of processes
	Clock      Check = "clock"
	GPUs       Check = "gpus" // GPUs and their driver
	Machine    Check = "machine"
	Agent      Check = "agent"     // the plx agent cannot be installed or does not run
	Processes  Check = "processes" // whether plx can end all processes of a job
	Leftovers  Check = "leftovers" // processes and files of earlier jobs
	Network    Check = "network"   // data addresses and network interfaces
	Python     Check = "python"
)

var order = []Check{Connection, HostKey, Login, Shell, Platform, Home, Tmp, Shm, Limits, Clock, GPUs, Machine, Agent, Processes, Leftovers, Network, Python}

// Finding is one problem on one host or on several.
type Finding struct {
	Level  Level    `json:"level"`
	Check  Check    `json:"check"`
	Hosts  []string `json:"hosts"` // names of the hosts, in the order of the resource file
	Text   string   `json:"text"`
	Remedy string   `json:"remedy"`
}

// thisMachine replaces the host name in findings about the machine that runs plx
// doctor.
const thisMachine = "this machine"

// group merges equal findings of several hosts. It sorts the result: errors
// first, then by check, then by host. labels lists all hosts in the order of
// the resource file.
func group(all []Finding, labels []string) []Finding {
	grouped := []Finding{} // an empty slice instead of nil, which JSON would encode as null
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
	place := func(host string) int { return slices.Index(labels, host) } // Index returns -1 for this machine, so it sorts first
	for _, f := range grouped {
		slices.SortStableFunc(f.Hosts, func(a, b string) int { return place(a) - place(b) })
	}
	slices.SortStableFunc(grouped, func(a, b Finding) int {
		return cmp.Or(strings.Compare(string(a.Level), string(b.Level)), // the levels sort as strings: "error" before "warning"
			slices.Index(order, a.Check)-slices.Index(order, b.Check), place(a.Hosts[0])-place(b.Hosts[0]))
	})
	return grouped
}
