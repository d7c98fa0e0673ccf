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
	"github.com/plx-run/plx/internal/plural"
)

// slot is room for one worker.
type slot struct {
	kind   kind
	id     hostfile.ID     // of a GPU as the line names it; if the line does not, its index or a MIG device's UUID
	device gpuprobe.Device // of a GPU that was probed
	probed bool
}

type kind int

const (
	noGPU    kind = iota
	oneGPU        // or one MIG device
	eachGPU       // in a dry run: one worker for each GPU, if there is any
	gpuOrCPU      // in a dry run: a GPU if the host has any, else no GPU
)

const onCPU = "cpu" // Task.Device of a worker without a GPU

func (s slot) String() string {
	switch s.kind {
	case noGPU:
		return onCPU
	case eachGPU:
		return "each GPU found there"
	case gpuOrCPU:
		return "a GPU, or cpu where there is none"
	}
	if s.probed {
		return deviceName(s.device)
	}
	return "gpu " + string(s.id)
}

// deviceName is Task.Device of a worker that was given d.
func deviceName(d gpuprobe.Device) string { return "gpu " + d.Label() }

// GivenGPU reports whether a worker gets a GPU. known is false for a server, and in a
// dry run if the probe will decide.
func (t Task) GivenGPU() (hasGPU, known bool) {
	return t.Visible != "", t.Visible != "" || t.Device == onCPU
}

// GPU returns what the probe found of a worker's GPU or MIG device.
func (m Machine) GPU(t Task) (gpuprobe.Device, bool) {
	if m.Report == nil {
		return gpuprobe.Device{}, false
	}
	all := m.Report.Devices()
	i := slices.IndexFunc(all, func(d gpuprobe.Device) bool { return deviceName(d) == t.Device })
	if i < 0 {
		return gpuprobe.Device{}, false
	}
	return all[i], true
}

// vendor returns whose GPUs the machine has; empty: none, or it is not known.
func (m Machine) vendor() gpuprobe.Vendor {
	if m.Report == nil {
		return ""
	}
	return m.Report.Vendor
}

// visible returns the ids by which programs see the GPUs of the slots: their UUIDs if the line
// names one of them so, for CUDA does not take both kinds at once.
func visible(slots []slot) string {
	byUUID := slices.ContainsFunc(slots, func(s slot) bool {
		_, index := s.id.Index()
		return s.kind == oneGPU && !index
	})
	var ids []string
	for _, s := range slots {
		switch {
		case s.kind != oneGPU:
		case byUUID && s.probed:
			ids = append(ids, s.device.UUID())
		default:
			ids = append(ids, cmp.Or(s.device.GPU.RuntimeID, string(s.id)))
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

func cpus(n int) []slot { return slices.Repeat([]slot{{kind: noGPU}}, n) }

// gpus returns the slots of the GPUs ids. It is an error if the host lacks one or
// one cannot be used.
func (m Machine) gpus(ids []hostfile.ID) (s []slot, err error) {
	for _, id := range ids {
		s = append(s, slot{kind: oneGPU, id: id})
	}
	if m.Report == nil {
		return s, nil
	}
	devices, err := m.Report.Check(names(ids))
	if err != nil {
		return nil, m.wrong(err)
	}
	for i, d := range devices {
		s[i].device, s[i].probed = d, true
	}
	if all := visible(s); strings.Contains(","+all+",", ",,") {
		return nil, m.wrong(errors.New("some GPUs are named by UUID, and the UUIDs of the others are not known: name all by index"))
	}
	return s, nil
}

func names(ids []hostfile.ID) (all []string) {
	for _, id := range ids {
		all = append(all, string(id))
	}
	return all
}

// found returns the slots of a line without ids. Those of "slots=N" are the GPUs 0 to N-1,
// those of a line without devices all GPUs, and of a GPU in MIG mode its MIG devices.
// Excluded GPUs are left out. It is an error if none is left: the job would silently leave
// out the host. If the host has no GPU the slots are CPU slots, and an exclusion does not
// concern them.
func (m Machine) found(perHost int) ([]slot, error) {
	n, counted := max(1, perHost), m.Devices.Kind == hostfile.Slots
	if counted {
		n = m.Devices.Count
	}
	switch {
	case m.Report == nil && counted:
		return slices.Repeat([]slot{{kind: gpuOrCPU}}, n-len(m.Devices.Excluded)), nil
	case m.Report == nil:
		return slices.Repeat([]slot{{kind: eachGPU}}, n), nil
	}
	if err := cmp.Or(m.listed(), m.Unmet()); err != nil {
		return nil, err
	}
	if len(m.Report.GPUs) == 0 {
		return cpus(n), nil
	}
	ids, err := m.ids()
	if counted {
		ids = nil
		for id := range n {
			ids = append(ids, hostfile.ID(strconv.Itoa(id)))
		}
		ids = slices.DeleteFunc(ids, func(id hostfile.ID) bool { return slices.Contains(m.Devices.Excluded, id) })
	}
	if err == nil && len(ids) == 0 {
		err = errors.New("every GPU found there is excluded")
	}
	if err != nil {
		return nil, m.wrong(err)
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
	_, err := m.Report.Find(names(d.Excluded))
	switch {
	case d.Kind == hostfile.AllGPUs && err != nil:
		return fmt.Errorf("%w, so it cannot be excluded", m.wrong(err))
	case d.Kind == hostfile.Slots && found > 0 && found < d.Count:
		return m.wrong(fmt.Errorf("slots=%d, but it has %s", d.Count, plural.Count(found, "GPU")))
	}
	return nil
}

// ids returns the GPUs that were found and not excluded, ascending. Of GPUs in MIG mode it
// returns the UUIDs of the MIG devices. Who excludes a GPU excludes its MIG devices.
func (m Machine) ids() (ids []hostfile.ID, err error) {
	excluded, err := m.Report.Find(names(m.Devices.Excluded))
	for _, d := range m.Report.Devices() {
		left := slices.ContainsFunc(excluded, func(e gpuprobe.Device) bool {
			return e.GPU.Index == d.GPU.Index && (e.MIG == nil || e.Label() == d.Label())
		})
		switch {
		case left:
		case d.MIG != nil:
			ids = append(ids, hostfile.ID(d.UUID()))
		default:
			ids = append(ids, hostfile.ID(d.Label()))
		}
	}
	return ids, err
}
