package doctor

import (
	"errors"
	"fmt"
	"regexp"
	"strings"
	"sync"

	"github.com/plx-run/plx/gpuprobe"
	"github.com/plx-run/plx/hostfile"
	"github.com/plx-run/plx/launcher/jobs"
	"github.com/plx-run/plx/launcher/placement"
)

// judgeGPUs adds findings about the GPUs of one host.
func (n *notes) judgeGPUs(m placement.Machine) {
	if err := placeAlone(m); err != nil {
		remedy := "correct the line in the resource file; plx probe shows the GPUs"
		if t := m.Report.GPUTool; t == gpuprobe.ToolBroken || t == gpuprobe.ToolHung {
			remedy = m.Report.Vendor.Remedy()
		}
		n.addError(GPUs, err, remedy)
		return
	}
	if m.Report.GPUError == "" || m.Devices.Kind == hostfile.ServerOnly || m.Devices.Kind == hostfile.CPUs {
		return
	}
	n.add(Warning, GPUs, m.Report.Vendor.Remedy(), "%s", m.Report.GPUError)
}

// placeAlone plans a job on this host only. It returns the error of the plan,
// without the host's name, or nil.
func placeAlone(m placement.Machine) error {
	if m.Devices.Kind == hostfile.ServerOnly {
		return nil // accept a host that is for parameter servers only, because it never runs a job alone
	}
	_, err := placement.Place([]placement.Machine{m}, placement.Options{})
	if err == nil {
		return nil
	}
	return errors.New(strings.TrimPrefix(err.Error(), fmt.Sprintf("%s: host %s: ", m.Pos, m.Name)))
}

var ofHost = sync.OnceValue(func() *regexp.Regexp { return regexp.MustCompile(`^host (\S+): (.*)$`) })

// judgeMachines returns findings about GPUs that are in use, and about
// different host names that mean the same machine. machines must have passed
// judgeGPUs.
func judgeMachines(machines []placement.Machine) (found []Finding) {
	p, err := placement.Place(machines, placement.Options{})
	if err != nil {
		return nil // after judgeGPUs, this error only means that all hosts are for parameter servers; there is nothing to judge
	}
	for _, line := range p.Busy(machines) {
		if m := ofHost().FindStringSubmatch(line); m != nil {
			found = append(found, Finding{Level: Error, Check: GPUs, Hosts: []string{m[1]}, Text: "a GPU is in use: " + m[2], Remedy: jobs.BusyHint})
		}
	}
	const remedy = "remove one of the lines from the resource file"
	same, err := p.Conflicts(machines)
	for _, line := range same {
		found = append(found, Finding{Level: Warning, Check: Machine, Hosts: []string{thisMachine}, Text: line, Remedy: remedy})
	}
	if err != nil {
		found = append(found, Finding{Level: Error, Check: Machine, Hosts: []string{thisMachine}, Text: err.Error(), Remedy: remedy})
	}
	return found
}
