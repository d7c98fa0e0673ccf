package launcher

import (
	"errors"
	"fmt"
	"net"
	"slices"
	"strconv"
	"strings"

	"github.com/plx-run/plx/gpuprobe"
	"github.com/plx-run/plx/hostfile"
	"github.com/plx-run/plx/trainer/cluster"
)

// machine is a host of the resource file with what was found there.
type machine struct {
	hostfile.Host
	report *gpuprobe.Report // nil in a dry run: its GPUs are not known
}

// ids are those of the GPUs that were found, ascending.
func (m machine) ids() []int {
	var ids []int
	for _, g := range m.report.GPUs {
		ids = append(ids, g.Index)
	}
	return ids
}

// wrong gives an error of the host the place in the resource file.
func (m machine) wrong(err error) error {
	return fmt.Errorf("%s: host %s: %w", m.Pos, m.Name, err)
}

// placing is what the user asked for beside the resource file.
type placing struct {
	workers     int      // in all; 0: one per device
	perHost     int      // on each host; 0: one per device
	servers     []string // hosts that get a server; nil: every host that is used
	noServers   bool
	visibleHost bool // a worker sees all devices of its host's workers
}

// placement is where every task of a job runs, by host of the resource file.
// Hosts without tasks are left out.
type placement struct {
	hosts   []placed
	workers int
	servers int
}

// placed is one host with its tasks, the servers first.
type placed struct {
	machine int // index into the machines
	tasks   []placedTask
	workers int
}

type placedTask struct {
	task      cluster.Task
	device    string // as the user names it: "gpu 3", "cpu", "" for a server
	visible   string // CUDA_VISIBLE_DEVICES
	localRank int
}

// place decides where every task runs. It is a pure function: ranks follow
// the order of the hosts, then of their devices, so that the same resource
// file always gives the same ranks.
func place(machines []machine, want placing) (placement, error) {
	if err := checkServers(machines, want); err != nil {
		return placement{}, err
	}
	var p placement
	left, guess := want.workers, false
	for i, m := range machines {
		slots, err := slots(m, want.perHost)
		if err != nil {
			return placement{}, err
		}
		if want.workers > 0 {
			slots = slots[:min(left, len(slots))]
			left -= len(slots)
		}
		guess = guess || slices.Contains(slots, unknown)
		p.add(i, m, slots, want)
	}
	if left > 0 && !guess {
		return placement{}, fmt.Errorf("%d workers were asked for with -n, the hosts have devices for %d", want.workers, p.workers)
	}
	if p.workers == 0 {
		return placement{}, Mistake(errors.New("no host has a device for a worker: every line of the resources says ps"), "")
	}
	return p, nil
}

// add gives machine i its workers, on the given slots, and its server.
func (p *placement) add(i int, m machine, slots []slot, want placing) {
	h := placed{machine: i, workers: len(slots)}
	if want.serves(m, len(slots) > 0) {
		h.tasks = append(h.tasks, placedTask{task: cluster.Task{Role: cluster.PS, Index: p.servers}})
		p.servers++
	}
	all := visible(slots)
	for rank, s := range slots {
		t := placedTask{task: cluster.Task{Role: cluster.Worker, Index: p.workers}, device: s.String(), visible: visible([]slot{s}), localRank: rank}
		if want.visibleHost {
			t.visible = all
		}
		h.tasks = append(h.tasks, t)
		p.workers++
	}
	if len(h.tasks) > 0 {
		p.hosts = append(p.hosts, h)
	}
}

// serves reports whether m gets a server.
func (want placing) serves(m machine, works bool) bool {
	switch {
	case want.noServers:
		return false
	case want.servers != nil:
		return slices.ContainsFunc(want.servers, m.is)
	}
	return works || m.Devices.Kind == hostfile.ServerOnly
}

// is reports whether the user means m by name: "gpu01" or "gpu01:2222", an
// IPv6 address with or without brackets.
func (m machine) is(name string) bool {
	port := m.Port
	if port == 0 {
		port = 22
	}
	return strings.EqualFold(name, m.Name) || strings.EqualFold(name, "["+m.Name+"]") ||
		strings.EqualFold(name, net.JoinHostPort(m.Name, strconv.Itoa(port)))
}

func checkServers(machines []machine, want placing) error {
	for _, name := range want.servers {
		if !slices.ContainsFunc(machines, func(m machine) bool { return m.is(name) }) {
			return Mistake(fmt.Errorf("--ps %s: no such host in the resources", name), "a host is written as in the resource file, without user and devices")
		}
	}
	return nil
}

// slot is room for one worker: a GPU's id, or noGPU for CPU cores.
type slot int

const (
	noGPU   slot = -1
	unknown slot = -2 // as many as the probe will find, in a dry run
	either  slot = -3 // one GPU or CPU cores, as the probe will find, in a dry run
)

func (s slot) String() string {
	switch s {
	case noGPU:
		return "cpu"
	case unknown:
		return "each GPU found there"
	case either:
		return "a GPU, or cpu where there is none"
	}
	return "gpu " + strconv.Itoa(int(s))
}

// visible is the value of CUDA_VISIBLE_DEVICES for the given slots.
func visible(slots []slot) string {
	var ids []string
	for _, s := range slots {
		if s >= 0 {
			ids = append(ids, strconv.Itoa(int(s)))
		}
	}
	return strings.Join(ids, ",")
}

// slots returns the room for workers on m, at most perHost of it unless that
// is 0. Asking for more than there is is an error.
func slots(m machine, perHost int) ([]slot, error) {
	all, err := devices(m, perHost)
	if err != nil || perHost == 0 || m.Devices.Kind == hostfile.ServerOnly {
		return all, err
	}
	if len(all) < perHost {
		return nil, fmt.Errorf("host %s: %d workers were asked for with --workers-per-host, it has devices for %d", m.Name, perHost, len(all))
	}
	return all[:perHost], nil
}

func devices(m machine, perHost int) ([]slot, error) {
	d := m.Devices
	switch d.Kind {
	case hostfile.ServerOnly:
		return nil, nil
	case hostfile.CPUs:
		return cpus(max(d.Count, perHost)), nil
	case hostfile.GPUs:
		return present(m, d.IDs)
	case hostfile.Slots:
		return slotted(m)
	}
	return found(m, perHost)
}

// found is every GPU of the host but the excluded ones, or its CPU cores where
// it has none.
func found(m machine, perHost int) ([]slot, error) {
	if m.report == nil {
		return slices.Repeat([]slot{unknown}, max(1, perHost)), nil
	}
	if err := counted(m); err != nil {
		return nil, err
	}
	if err := m.unmet(); err != nil {
		return nil, err
	}
	if len(m.report.GPUs) == 0 {
		return cpus(max(1, perHost)), nil
	}
	return remaining(m, m.ids())
}

// counted refuses a host whose line names no ids, and that could not tell how
// many GPUs it has: to take it for one without would be a guess.
func counted(m machine) error {
	if t := m.report.GPUTool; t == gpuprobe.ToolBroken || t == gpuprobe.ToolHung {
		return m.wrong(fmt.Errorf("which GPUs it has is not known: %s (put their ids behind the host, or cpu for a worker without GPU)", m.report.GPUError))
	}
	return nil
}

func cpus(n int) []slot { return slices.Repeat([]slot{noGPU}, n) }

// present gives each of ids its slot, if the host has it and it is sound.
func present(m machine, ids []int) ([]slot, error) {
	if m.report != nil {
		if err := m.report.Check(ids); err != nil {
			return nil, m.wrong(err)
		}
	}
	var s []slot
	for _, id := range ids {
		s = append(s, slot(id))
	}
	return s, nil
}

// unmet refuses a host without a GPU that its line names, to use it or to leave
// it out. What the line does not name is not missed, nor while it is not known
// which GPUs there are.
func (m machine) unmet() error {
	d, found := m.Devices, len(m.report.GPUs)
	if d.Kind == hostfile.GPUs {
		_, err := present(m, d.IDs)
		return err
	}
	if counted(m) != nil {
		return nil
	}
	lacks := m.report.Lacks(d.Excluded)
	switch {
	case d.Kind == hostfile.AllGPUs && len(lacks) > 0:
		return fmt.Errorf("%w, so it cannot be excluded", m.wrong(m.report.Check(lacks)))
	case d.Kind == hostfile.Slots && found > 0 && found < d.Count:
		return m.wrong(fmt.Errorf("slots=%d, but it has %s", d.Count, count(found, "GPU")))
	}
	return nil
}

// slotted reads "slots=N": the GPUs 0 to N-1, or N CPU workers where there is
// no GPU. What is excluded are GPUs: it takes nothing from the cores.
func slotted(m machine) ([]slot, error) {
	n := m.Devices.Count
	if m.report == nil {
		return slices.Repeat([]slot{either}, n-len(m.Devices.Excluded)), nil
	}
	if err := counted(m); err != nil {
		return nil, err
	}
	if len(m.report.GPUs) == 0 {
		return cpus(n), nil
	}
	if err := m.unmet(); err != nil {
		return nil, err
	}
	var ids []int
	for id := range n {
		ids = append(ids, id)
	}
	return remaining(m, ids)
}

// remaining is what the host's line does not exclude of ids, at least one: a
// host without devices would be left out of the job without a word.
func remaining(m machine, ids []int) ([]slot, error) {
	left := slices.DeleteFunc(slices.Clone(ids), func(id int) bool { return slices.Contains(m.Devices.Excluded, id) })
	if len(left) == 0 {
		return nil, m.wrong(errors.New("every GPU found there is excluded"))
	}
	return present(m, left)
}
