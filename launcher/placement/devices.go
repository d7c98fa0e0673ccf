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

// slot is a place for one worker: a GPU, a MIG device or CPU cores of a host.
type slot struct {
	kind   kind
	id     hostfile.ID     // id of a GPU: as in the resource file or, if the file names none, the GPU's index; for a MIG device its UUID
	device gpuprobe.Device // the GPU as nvidia-smi or a similar tool reported it; valid if probed is true
	probed bool
}

type kind int

const (
	noGPU    kind = iota
	oneGPU        // one GPU, or one MIG device
	eachGPU       // only in a dry run: one worker for each GPU that the host has
	gpuOrCPU      // only in a dry run: a GPU if the host has any, otherwise CPU only
)

const onCPU = "cpu" // value of Task.Device for a worker without a GPU

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

// deviceName returns the value of Task.Device for a worker on device d.
func deviceName(d gpuprobe.Device) string { return "gpu " + d.Label() }

// GivenGPU reports whether a worker gets a GPU. known is false for a parameter
// server. In a dry run (without connections), known is also false if the
// answer depends on the GPUs of the host.
func (t Task) GivenGPU() (hasGPU, known bool) {
	return t.VisibleIDs != "", t.VisibleIDs != "" || t.Device == onCPU
}

// GPU returns the probe's result for the GPU or MIG device of task t. It
// returns false if the task has none, or the machine was not probed.
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

// vendor returns the vendor of the machine's GPUs; "" if the machine has none
// or was not probed.
func (m Machine) vendor() gpuprobe.Vendor {
	if m.Report == nil {
		return ""
	}
	return m.Report.Vendor
}

// visible returns the ids of the slots' GPUs for a variable such as
// CUDA_VISIBLE_DEVICES. CUDA accepts either indexes or UUIDs in this variable.
// Therefore, if the resource file names one GPU by UUID, visible uses UUIDs
// for all.
//
// TODO: try the ids of AMD GPUs on a host that has some; the tests only have
// stand-ins for AMD's tools.
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

// slots returns slots for perHost workers on machine m, or all slots if
// perHost is 0. It returns an error if m has fewer slots than perHost.
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

// gpus returns a slot for each GPU in ids. If the machine was probed (its GPUs
// were listed), gpus returns an error if a GPU does not exist or cannot be
// used.
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

// found returns the slots of a machine whose line in the resource file names
// no GPU ids. For "slots=N", the slots are GPUs 0 to N-1. In all other cases,
// they are all GPUs; a GPU in MIG mode counts as its MIG devices. found omits
// GPUs that the line excludes. If all GPUs are excluded, found returns an
// error, so that the user learns that the job would not use the host. On a
// host without GPUs, the slots are CPU slots, and exclusions do not apply to
// them.
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

// listed returns an error if the probe (nvidia-smi or a similar tool) could
// not list the machine's GPUs. In that case the machine may have GPUs, so plx
// must not treat it as a machine without GPUs.
func (m Machine) listed() error {
	if t := m.Report.GPUTool; t == gpuprobe.ToolBroken || t == gpuprobe.ToolHung {
		return m.wrong(fmt.Errorf("which GPUs it has is not known: %s (name their ids after the host, or cpu for a worker without GPU)", m.Report.GPUError))
	}
	return nil
}

// Unmet returns an error if the machine does not have a GPU that its line in
// the resource file uses or excludes. It returns nil if the probe could not
// list the GPUs.
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

// ids returns the ids of the GPUs that the probe found and that the resource
// file does not exclude. For a GPU in MIG mode, it returns the UUIDs of the
// GPU's MIG devices. Excluding a GPU also excludes its MIG devices.
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
