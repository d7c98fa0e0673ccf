package placement

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/plx-run/plx/gpuprobe"
	"github.com/plx-run/plx/hostfile"
)

// slot is room for one worker: a GPU's id, or one of the constants.
type slot int

const (
	cpu      slot = -1 // no GPU
	eachGPU  slot = -2 // in a dry run: one worker for each GPU, if there is any
	gpuOrCPU slot = -3 // in a dry run: a GPU if the host has any, else no GPU
)

func (s slot) String() string {
	switch s {
	case cpu:
		return "cpu"
	case eachGPU:
		return "each GPU found there"
	case gpuOrCPU:
		return "a GPU, or cpu where there is none"
	}
	return "gpu " + strconv.Itoa(int(s))
}

// visible returns the CUDA_VISIBLE_DEVICES of the slots.
func visible(slots []slot) string {
	var ids []string
	for _, s := range slots {
		if s >= 0 {
			ids = append(ids, strconv.Itoa(int(s)))
		}
	}
	return strings.Join(ids, ",")
}

// slots returns the room for workers on m: perHost slots, or all if perHost is 0.
// It is an error to ask for more than there are.
func slots(m Machine, perHost int) ([]slot, error) {
	all, err := allSlots(m, perHost)
	if err != nil || perHost == 0 || m.Devices.Kind == hostfile.ServerOnly {
		return all, err
	}
	if len(all) < perHost {
		return nil, fmt.Errorf("host %s: %d workers were asked for with --workers-per-host, it has devices for %d", m.Name, perHost, len(all))
	}
	return all[:perHost], nil
}

func allSlots(m Machine, perHost int) ([]slot, error) {
	switch d := m.Devices; d.Kind {
	case hostfile.ServerOnly:
		return nil, nil
	case hostfile.CPUs:
		return cpus(max(d.Count, perHost)), nil
	case hostfile.GPUs:
		return m.gpus(d.IDs)
	}
	return m.found(perHost)
}

func cpus(n int) []slot { return slices.Repeat([]slot{cpu}, n) }

// gpus returns the slots of the GPUs ids. It is an error if the host lacks one or
// one is faulty.
func (m Machine) gpus(ids []int) (s []slot, err error) {
	if m.Report != nil {
		if err := m.Report.Check(ids); err != nil {
			return nil, m.wrong(err)
		}
	}
	for _, id := range ids {
		s = append(s, slot(id))
	}
	return s, nil
}

// found returns the slots of a line without ids. Those of "slots=N" are the GPUs 0 to N-1,
// those of a line without devices all GPUs. Excluded GPUs are left out. It is an error if
// none is left: the job would silently leave out the host. If the host has no GPU the
// slots are CPU slots, and an exclusion does not concern them.
func (m Machine) found(perHost int) ([]slot, error) {
	n, counted := max(1, perHost), m.Devices.Kind == hostfile.Slots
	if counted {
		n = m.Devices.Count
	}
	switch {
	case m.Report == nil && counted:
		return slices.Repeat([]slot{gpuOrCPU}, n-len(m.Devices.Excluded)), nil
	case m.Report == nil:
		return slices.Repeat([]slot{eachGPU}, n), nil
	}
	if err := cmp.Or(m.listed(), m.Unmet()); err != nil {
		return nil, err
	}
	if len(m.Report.GPUs) == 0 {
		return cpus(n), nil
	}
	ids := m.ids()
	if counted {
		ids = nil
		for id := range n {
			ids = append(ids, id)
		}
	}
	ids = slices.DeleteFunc(ids, func(id int) bool { return slices.Contains(m.Devices.Excluded, id) })
	if len(ids) == 0 {
		return nil, m.wrong(errors.New("every GPU found there is excluded"))
	}
	return m.gpus(ids)
}

// listed refuses a host whose GPUs could not be listed. To treat it as a host
// without GPUs would be a guess.
func (m Machine) listed() error {
	if t := m.Report.GPUTool; t == gpuprobe.ToolBroken || t == gpuprobe.ToolHung {
		return m.wrong(fmt.Errorf("which GPUs it has is not known: %s (name their ids after the host, or cpu for a worker without GPU)", m.Report.GPUError))
	}
	return nil
}

// Unmet returns an error if the host lacks a GPU that its line uses or excludes.
// If the GPUs could not be listed it returns nil.
func (m Machine) Unmet() error {
	d, found := m.Devices, len(m.Report.GPUs)
	if d.Kind == hostfile.GPUs {
		_, err := m.gpus(d.IDs)
		return err
	}
	if m.listed() != nil {
		return nil
	}
	lacks := m.Report.Lacks(d.Excluded)
	switch {
	case d.Kind == hostfile.AllGPUs && len(lacks) > 0:
		return fmt.Errorf("%w, so it cannot be excluded", m.wrong(m.Report.Check(lacks)))
	case d.Kind == hostfile.Slots && found > 0 && found < d.Count:
		plural := "s"
		if found == 1 {
			plural = ""
		}
		return m.wrong(fmt.Errorf("slots=%d, but it has %d GPU%s", d.Count, found, plural))
	}
	return nil
}

// ids returns the GPUs that were found, ascending.
func (m Machine) ids() (ids []int) {
	for _, g := range m.Report.GPUs {
		ids = append(ids, g.Index)
	}
	return ids
}
