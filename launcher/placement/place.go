// Package placement decides on which host and device each task of a job runs,
// and which rank the task gets.
//
//	p, err := placement.Place(machines, placement.Options{Workers: 4})
//	for _, h := range p.Hosts {
//		fmt.Println(machines[h.Machine].Name, h.Tasks)
//	}
//
// The package only computes: it connects to no host, and the same input always
// gives the same ranks.
package placement

import (
	"cmp"
	"errors"
	"fmt"
	"net"
	"slices"
	"strconv"
	"strings"

	"github.com/plx-run/plx/gpuprobe"
	"github.com/plx-run/plx/hostfile"
	"github.com/plx-run/plx/launcher/console"
	"github.com/plx-run/plx/launcher/exit"
	"github.com/plx-run/plx/launcher/protocol"
	"github.com/plx-run/plx/trainer/cluster"
)

// Machine is a host of the resource file, together with the result of probing
// the host's GPUs.
type Machine struct {
	hostfile.Host
	// Report lists the GPUs that the probe found. It is nil in a dry run, in
	// which the GPUs are unknown.
	Report *gpuprobe.Report
	// ID identifies the physical machine, as "BOOT/HOSTNAME". It is "" if the
	// machine is unknown. It is also "" if several hosts share one machine on
	// purpose, as in an embedded cluster (hosts simulated on this machine).
	ID string
}

// wrong adds the host's name and its line number in the resource file to an
// error.
func (m Machine) wrong(err error) error {
	return fmt.Errorf("%s: host %s: %w", m.Pos, m.Name, err)
}

// Options are the user's options for the placement of tasks. The job's agents
// (plx's process on each host) store them, so that plx scale can apply them to
// hosts that join the job later.
type Options = protocol.Placing

// Joining returns the options for hosts that join a running job. It sets
// Workers to 0, because that option applies only to the hosts of the launch.
// It removes from Servers all names that are not those of joining hosts.
func Joining(launched Options, hosts []hostfile.Host) Options {
	launched.Workers = 0
	if launched.Servers != nil {
		launched.Servers = slices.DeleteFunc(slices.Clone(launched.Servers), func(name string) bool { return !namesAny(name, hosts) })
		launched.NoServers = launched.NoServers || len(launched.Servers) == 0
	}
	return launched
}

// Placement is the result of Place: the tasks of each host. Hosts without
// tasks are omitted.
type Placement struct {
	Hosts   []Host // hosts in the order of the resource file
	Workers int    // number of workers in the whole job
	Servers int    // number of parameter servers in the whole job
	// Guessed is true if a host was not probed, so that its number of GPUs is
	// unknown. In a real launch, the ranks on later hosts may then differ.
	Guessed bool
}

// Host is a host with the tasks that run there.
type Host struct {
	Machine int    // index in the slice of machines that was passed to Place
	Tasks   []Task // tasks on the host; a parameter server, if there is one, comes first
}

// Task is a task and the device that it runs on.
type Task struct {
	Task       cluster.Task
	Device     string          // name of the device for messages: "gpu 3", "gpu 3:0" for a MIG device, or "cpu"; "" for a parameter server
	VisibleIDs string          // ids of the GPUs that the task sees, as in CUDA_VISIBLE_DEVICES; "" if it sees none
	Vendor     gpuprobe.Vendor // vendor of the task's GPUs; "" if unknown
	LocalRank  int             // index of a worker among the workers of its host, from 0; 0 for a parameter server

	Claims []protocol.Claim // GPUs to reserve for the task; nil for a task without a GPU and in a dry run
}

// GPUWorkers returns the number of the host's workers that have a GPU.
func (h Host) GPUWorkers() (n int) {
	for _, t := range h.Tasks {
		if t.VisibleIDs != "" {
			n++
		}
	}
	return n
}

// Specs returns the host's tasks in the form that is sent to its agent.
func (h Host) Specs() (specs []protocol.TaskSpec) {
	for _, t := range h.Tasks {
		specs = append(specs, protocol.TaskSpec{Task: t.Task, Devices: t.VisibleIDs, Visible: t.Vendor.Visible(t.VisibleIDs), LocalRank: t.LocalRank, Claims: t.Claims})
	}
	return specs
}

// Place decides on which machine and device each task runs. Ranks follow the
// order of machines, and within a machine the order of its devices.
func Place(machines []Machine, want Options) (Placement, error) {
	var known []hostfile.Host
	for _, m := range machines {
		known = append(known, m.Host)
	}
	if err := CheckServers(known, want.Servers); err != nil {
		return Placement{}, err
	}
	var p Placement
	left := want.Workers
	for i, m := range machines {
		slots, err := slots(m, want.PerHost)
		if err != nil {
			return Placement{}, err
		}
		if want.Workers > 0 {
			slots = slots[:min(left, len(slots))]
			left -= len(slots)
		}
		p.add(i, m, slots, want)
	}
	if left > 0 && !p.Guessed {
		return Placement{}, fmt.Errorf("%d workers were asked for with -n, the hosts have devices for %d", want.Workers, p.Workers)
	}
	if p.Workers == 0 {
		return Placement{}, exit.Mistake(errors.New("no host has a device for a worker: every line of the resources says ps"), "take ps off a line: a host alone has a worker for each of its GPUs, \"gpu01: 0,1\" one for each of these")
	}
	return p, nil
}

// add adds the tasks of the machine with index i: a worker for each slot (a
// GPU or CPU cores) and, depending on the options, a parameter server.
func (p *Placement) add(i int, m Machine, slots []slot, want Options) {
	h := Host{Machine: i}
	if hasServer(want, m, len(slots) > 0) {
		h.Tasks = append(h.Tasks, Task{Task: cluster.Task{Role: cluster.PS, Index: p.Servers}})
		p.Servers++
	}
	all := visible(slots)
	divided := slices.ContainsFunc(slots, func(s slot) bool { return s.device.MIG != nil })
	for rank, s := range slots {
		t := Task{Task: cluster.Task{Role: cluster.Worker, Index: p.Workers}, Device: s.String(), VisibleIDs: visible([]slot{s}), Vendor: m.vendor(), LocalRank: rank, Claims: claims(s, want.ShareGPUs)}
		if want.VisibleHost && !divided { // a process can use only one MIG device (part of a GPU), so it sees only its own even with VisibleHost
			t.VisibleIDs = all
		}
		h.Tasks = append(h.Tasks, t)
		p.Workers++
		p.Guessed = p.Guessed || s.kind == eachGPU
	}
	if len(h.Tasks) > 0 {
		p.Hosts = append(p.Hosts, h)
	}
}

// hasServer reports whether machine m gets a parameter server. works says
// whether m gets a worker.
func hasServer(want Options, m Machine, works bool) bool {
	switch {
	case want.NoServers:
		return false
	case want.Servers != nil:
		return slices.ContainsFunc(want.Servers, func(name string) bool { return matchesName(name, m.Host) })
	}
	return works || m.Devices.Kind == hostfile.ServerOnly
}

// CheckServers returns an error if one of the names for parameter servers is
// not the name of a host.
func CheckServers(all []hostfile.Host, names []string) error {
	for _, name := range names {
		if !namesAny(name, all) {
			return exit.Mistake(fmt.Errorf("--ps %s: no such host in the resources", name), "a host is written as in the resource file, without user and devices")
		}
	}
	return nil
}

func namesAny(name string, of []hostfile.Host) bool {
	return slices.ContainsFunc(of, func(h hostfile.Host) bool { return matchesName(name, h) })
}

// matchesName reports whether name stands for host h. It can be "gpu01" or
// "gpu01:2222", or an IPv6 address with or without brackets.
func matchesName(name string, h hostfile.Host) bool {
	return strings.EqualFold(name, h.Name) || strings.EqualFold(name, "["+h.Name+"]") ||
		strings.EqualFold(name, net.JoinHostPort(h.Name, strconv.Itoa(cmp.Or(h.Port, 22))))
}

// Conflicts returns a line for each machine that the resource file lists under
// several host names. It returns an error if tasks of two of these hosts would
// use the same GPU.
func (p Placement) Conflicts(machines []Machine) (lines []string, err error) {
	var ids []string // ids of the machines, in the order of their first hosts
	of := map[string][]Host{}
	for _, h := range p.Hosts {
		id := machines[h.Machine].ID
		if id == "" {
			continue
		}
		if of[id] == nil {
			ids = append(ids, id)
		}
		for _, other := range of[id] {
			if gpu := sharedGPU(other, h); gpu != "" {
				return nil, fmt.Errorf("%s, and both would use %s", oneMachine(id, machines[other.Machine].Name, machines[h.Machine].Name), gpu)
			}
		}
		of[id] = append(of[id], h)
	}
	for _, id := range ids {
		if len(of[id]) == 1 {
			continue
		}
		var names []string
		for _, h := range of[id] {
			names = append(names, machines[h.Machine].Name)
		}
		lines = append(lines, oneMachine(id, names...))
	}
	return lines, nil
}

func oneMachine(id string, names ...string) string {
	_, name, _ := strings.Cut(id, "/")
	return fmt.Sprintf("hosts %s are one machine (%s)", console.Fold(names), name)
}

// sharedGPU returns the name of a GPU that tasks of both hosts use, or "" if
// there is none.
func sharedGPU(a, b Host) string {
	for _, x := range a.Tasks {
		for _, y := range b.Tasks {
			if x.VisibleIDs != "" && x.Device == y.Device {
				return x.Device
			}
		}
	}
	return ""
}
