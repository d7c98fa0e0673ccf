// Package placement decides where every task of a job runs: machines and options
// in, ranks out.
//
//	p, err := placement.Place(machines, placement.Options{Workers: 4})
//	for _, h := range p.Hosts {
//		fmt.Println(machines[h.Machine].Name, h.Tasks)
//	}
//
// It is pure: it reaches no host, and the same input always gives the same ranks.
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

// Machine is a host of the resource file and what a probe found there.
type Machine struct {
	hostfile.Host
	// Report is what the probe found. Nil in a dry run: the GPUs are not known.
	Report *gpuprobe.Report
	// ID identifies the machine behind the name: "BOOT/HOSTNAME". Empty: not known,
	// or several hosts share a machine on purpose, as in an embedded cluster.
	ID string
}

// wrong adds the host and its line of the resource file to an error.
func (m Machine) wrong(err error) error {
	return fmt.Errorf("%s: host %s: %w", m.Pos, m.Name, err)
}

// Options are what the user asks for beside the resource file. A job's agents keep them, for
// hosts that join it.
type Options = protocol.Placing

// Joining returns the options for hosts that join a job. The launch counted its Workers on its
// own hosts, and may have named Servers that are none of these.
func Joining(launched Options, hosts []hostfile.Host) Options {
	launched.Workers = 0
	if launched.Servers != nil {
		launched.Servers = slices.DeleteFunc(slices.Clone(launched.Servers), func(name string) bool { return !namesOne(name, hosts) })
		launched.NoServers = launched.NoServers || len(launched.Servers) == 0
	}
	return launched
}

// Placement is where every task of a job runs. Hosts without tasks are left out.
type Placement struct {
	Hosts   []Host // in the order of the resource file
	Workers int    // in the whole job
	Servers int    // in the whole job
	// Guessed tells that a host without a report has an unknown number of GPUs:
	// the ranks after it may change.
	Guessed bool
}

// Host is one host with its tasks.
type Host struct {
	Machine int    // index into the machines that Place was given
	Tasks   []Task // the server first
}

// Task is one task and its device.
type Task struct {
	Task      cluster.Task
	Device    string          // for the user: "gpu 3", "gpu 3:0" for a MIG device, "cpu"; empty for a server
	Visible   string          // ids of the GPUs that the task sees, as their vendor's Variable takes them; empty: it sees none
	Vendor    gpuprobe.Vendor // of these GPUs; empty: not known
	LocalRank int             // rank of a worker among those of its host, from 0; 0 for a server

	Claims []protocol.Claim // what the job books for the task; nil without a GPU, or in a dry run
}

// GPUWorkers returns how many of the host's workers have GPUs.
func (h Host) GPUWorkers() (n int) {
	for _, t := range h.Tasks {
		if t.Visible != "" {
			n++
		}
	}
	return n
}

// Specs returns the host's tasks as its agent is told of them.
func (h Host) Specs() (specs []protocol.TaskSpec) {
	for _, t := range h.Tasks {
		specs = append(specs, protocol.TaskSpec{Task: t.Task, Devices: t.Visible, Visible: t.Vendor.Visible(t.Visible), LocalRank: t.LocalRank, Claims: t.Claims})
	}
	return specs
}

// Place decides where every task runs. Ranks follow the order of the machines,
// then the order of their devices.
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

// add gives machine i its server, and a worker for each of the slots.
func (p *Placement) add(i int, m Machine, slots []slot, want Options) {
	h := Host{Machine: i}
	if hasServer(want, m, len(slots) > 0) {
		h.Tasks = append(h.Tasks, Task{Task: cluster.Task{Role: cluster.PS, Index: p.Servers}})
		p.Servers++
	}
	all := visible(slots)
	divided := slices.ContainsFunc(slots, func(s slot) bool { return s.device.MIG != nil })
	for rank, s := range slots {
		t := Task{Task: cluster.Task{Role: cluster.Worker, Index: p.Workers}, Device: s.String(), Visible: visible([]slot{s}), Vendor: m.vendor(), LocalRank: rank, Claims: claims(s, want.ShareGPUs)}
		if want.VisibleHost && !divided { // CUDA shows a process one MIG device
			t.Visible = all
		}
		h.Tasks = append(h.Tasks, t)
		p.Workers++
		p.Guessed = p.Guessed || s.kind == eachGPU
	}
	if len(h.Tasks) > 0 {
		p.Hosts = append(p.Hosts, h)
	}
}

// hasServer reports whether m gets a server; works tells whether it gets a worker.
func hasServer(want Options, m Machine, works bool) bool {
	switch {
	case want.NoServers:
		return false
	case want.Servers != nil:
		return slices.ContainsFunc(want.Servers, func(name string) bool { return means(name, m.Host) })
	}
	return works || m.Devices.Kind == hostfile.ServerOnly
}

// CheckServers refuses names of servers that are none of the hosts.
func CheckServers(all []hostfile.Host, names []string) error {
	for _, name := range names {
		if !namesOne(name, all) {
			return exit.Mistake(fmt.Errorf("--ps %s: no such host in the resources", name), "a host is written as in the resource file, without user and devices")
		}
	}
	return nil
}

func namesOne(name string, of []hostfile.Host) bool {
	return slices.ContainsFunc(of, func(h hostfile.Host) bool { return means(name, h) })
}

// means reports whether the user means h by name: "gpu01" or "gpu01:2222", an IPv6 address
// with or without brackets.
func means(name string, h hostfile.Host) bool {
	return strings.EqualFold(name, h.Name) || strings.EqualFold(name, "["+h.Name+"]") ||
		strings.EqualFold(name, net.JoinHostPort(h.Name, strconv.Itoa(cmp.Or(h.Port, 22))))
}

// Conflicts describes the hosts that are one machine under several names, in a line for each
// machine. It is an error if tasks of two of them would use the same GPU.
func (p Placement) Conflicts(machines []Machine) (lines []string, err error) {
	var ids []string // of machines, in the order of their first hosts
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

// sharedGPU returns a GPU that tasks of both hosts use, or "".
func sharedGPU(a, b Host) string {
	for _, x := range a.Tasks {
		for _, y := range b.Tasks {
			if x.Visible != "" && x.Device == y.Device {
				return x.Device
			}
		}
	}
	return ""
}
