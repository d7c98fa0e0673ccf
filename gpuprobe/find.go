package gpuprobe

import (
	"cmp"
	"fmt"
	"slices"
	"strconv"
	"strings"
)

// Device is a GPU, or one MIG device of a GPU, that a program can use.
type Device struct {
	GPU GPU
	MIG *MIG // MIG device of GPU; nil if the Device is the whole GPU
}

// Label returns the index of the GPU, such as "3". For a MIG device it returns
// the indices of GPU and MIG device, such as "3:0".
func (d Device) Label() string {
	if d.MIG == nil {
		return strconv.Itoa(d.GPU.Index)
	}
	return fmt.Sprintf("%d:%d", d.GPU.Index, d.MIG.Index)
}

// UUID returns the UUID of the GPU or of its MIG device, or "" if it is
// unknown.
func (d Device) UUID() string {
	if d.MIG == nil {
		return d.GPU.UUID
	}
	return d.MIG.UUID
}

// Users returns the device's compute processes, and whether the device is
// busy. A MIG device is busy only if a process is known to use it, because
// nvidia-smi does not report its memory use or utilisation.
func (d Device) Users() (all []Process, busy bool) {
	if d.MIG == nil {
		return d.GPU.Processes, d.GPU.Busy
	}
	return d.MIG.Processes, len(d.MIG.Processes) > 0
}

// Unplaced returns the GPU's processes of which nvidia-smi does not report the
// MIG device that they use. g must be in MIG mode.
func (g GPU) Unplaced() (all []Process) {
	for _, p := range g.Processes {
		if !slices.ContainsFunc(g.MIG, func(m MIG) bool { return slices.Contains(m.Processes, p) }) {
			all = append(all, p)
		}
	}
	return all
}

// unusable returns the reason why no program can use the device, or nil if
// programs can use it.
func (d Device) unusable() error {
	g := d.GPU
	switch {
	case g.Fault != "":
		return fmt.Errorf("GPU %d cannot be used: %s", g.Index, g.Fault)
	case d.MIG != nil || !g.MIGMode && len(g.MIG) == 0:
		return nil
	case len(g.MIG) == 0:
		return fmt.Errorf("GPU %d is in MIG mode and has no MIG devices: make some with nvidia-smi mig, or leave the GPU out", g.Index)
	}
	return fmt.Errorf("GPU %d is in MIG mode, name its MIG devices instead: %s", g.Index, listed(migOf(g)))
}

// Devices returns all devices of the host. For a GPU with MIG devices it
// returns the MIG devices and not the GPU.
func (r Report) Devices() (all []Device) {
	for _, g := range r.GPUs {
		if len(g.MIG) == 0 {
			all = append(all, Device{GPU: g})
		}
		all = append(all, migOf(g)...)
	}
	return all
}

func migOf(g GPU) (all []Device) {
	for i := range g.MIG {
		all = append(all, Device{GPU: g, MIG: &g.MIG[i]})
	}
	return all
}

// matches returns the devices that name may mean. name is an index, a UUID or
// the beginning of a UUID. A complete UUID matches only its own device, even
// if longer UUIDs begin with it.
func (r Report) matches(name string) (found []Device) {
	index, err := strconv.Atoi(name)
	begins := func(uuid string) bool {
		return len(uuid) >= len(name) && strings.EqualFold(uuid[:len(name)], name)
	}
	for _, g := range r.GPUs {
		for _, d := range append(migOf(g), Device{GPU: g}) {
			switch {
			case err == nil && d.MIG == nil && g.Index == index:
				found = append(found, d)
			case err != nil && begins(d.UUID()):
				if len(d.UUID()) == len(name) {
					return []Device{d}
				}
				found = append(found, d)
			}
		}
	}
	return found
}

// lacks returns the elements of names that match no device of the host, in the
// given order.
func (r Report) lacks(names []string) []string {
	return slices.DeleteFunc(slices.Clone(names), func(name string) bool { return len(r.matches(name)) > 0 })
}

// Find returns the devices with the given names. A name is an index, a UUID or
// the beginning of a UUID. Find returns an error if a name matches no device
// or more than one; the error lists the host's devices. The caller adds the
// host's name to the error.
func (r Report) Find(names []string) (all []Device, err error) {
	if missing := r.lacks(names); len(missing) > 0 {
		if len(r.GPUs) == 0 && (r.GPUTool == ToolBroken || r.GPUTool == ToolHung) {
			return nil, fmt.Errorf("GPU %s was not found: %s", strings.Join(missing, ", "), r.GPUError) // The GPU may exist, because the tool could not list the GPUs.
		}
		return nil, fmt.Errorf("no GPU %s: %s", strings.Join(missing, ", "), r.summary(missing))
	}
	for _, name := range names {
		found := r.matches(name)
		if len(found) > 1 {
			return nil, fmt.Errorf("%s can mean several GPUs, write more of the UUID: %s", name, listed(found))
		}
		all = append(all, found[0])
	}
	return all, nil
}

// Check returns the devices with the given names, as Find does. It also
// returns an error if no program can use one of the devices, or if two names
// mean the same device.
func (r Report) Check(names []string) ([]Device, error) {
	all, err := r.Find(names)
	if err != nil {
		return nil, err
	}
	seen := map[string]string{}
	for i, d := range all {
		if err := d.unusable(); err != nil {
			return nil, err
		}
		if other, twice := seen[d.Label()]; twice {
			return nil, fmt.Errorf("GPU %s is named twice, as %s and as %s", d.Label(), other, names[i])
		}
		seen[d.Label()] = names[i]
	}
	return all, nil
}

// summary returns the second half of Find's error message: the GPUs that the
// host has. It shows their UUIDs if one of the missing names is a UUID.
func (r Report) summary(missing []string) string {
	have := "the host has none"
	byUUID := slices.ContainsFunc(missing, func(name string) bool { _, err := strconv.Atoi(name); return err != nil })
	switch {
	case len(r.GPUs) > 0 && byUUID:
		have = "the host has " + listed(r.Devices())
	case len(r.GPUs) > 0:
		var ids []string
		for _, g := range r.GPUs {
			ids = append(ids, strconv.Itoa(g.Index))
		}
		have = "the host has " + strings.Join(ids, ", ")
	}
	if r.GPUError != "" {
		have += " (" + r.GPUError + ")"
	}
	return have
}

// listed formats devices and their UUIDs for an error message; at most 16
// devices.
func listed(all []Device) string {
	const most = 16
	var words []string
	for _, d := range all[:min(len(all), most)] {
		what := "GPU " + d.Label()
		if d.MIG != nil {
			what = d.MIG.Profile + " of GPU " + strconv.Itoa(d.GPU.Index)
		}
		words = append(words, fmt.Sprintf("%s (%s)", cmp.Or(d.UUID(), "no UUID"), what))
	}
	if more := len(all) - most; more > 0 {
		words = append(words, fmt.Sprintf("%d more", more))
	}
	return strings.Join(words, ", ")
}
