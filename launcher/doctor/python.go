package doctor

import (
	"context"
	"slices"
	"strings"

	"github.com/plx-run/plx/launcher/placement"
)

// askPython runs python3 on the hosts that have the agent, if that is wanted, as a task would.
func (e *examination) askPython(ctx context.Context) error {
	if !e.cfg.Python && len(e.cfg.CheckImport) == 0 {
		return nil
	}
	with := slices.DeleteFunc(slices.Clone(e.placed), func(v *visit) bool { return v.agentReport == nil })
	for _, v := range e.stage(ctx, with, e.recipe.Imports, (*visit).unimported) {
		if v.Note != "" {
			v.add(Warning, Python, "install a torch that is built for CUDA", "%s", v.Note)
		}
	}
	return context.Cause(ctx)
}

// unimported notes why a host's Python cannot do a job there.
func (v *visit) unimported(err error) {
	remedy := "install it there, or send an environment with plx launch --venv"
	if v.Python == nil {
		remedy = "install python3 there, or --path FOLDERS names where it is"
	}
	v.failed(Python, err, remedy)
}

// gpuWorkers returns how many workers with GPUs a job has on the host.
func gpuWorkers(m placement.Machine) int {
	p, err := placement.Place([]placement.Machine{m}, placement.Options{})
	if err != nil || len(p.Hosts) == 0 {
		return 0 // it has servers only
	}
	return p.Hosts[0].GPUWorkers()
}

// comparePython finds hosts with another Python or torch than most.
func comparePython(all []HostFacts) []Finding {
	python, torch := map[string][]string{}, map[string][]string{}
	for _, h := range all {
		if h.Python == nil {
			continue
		}
		if minor, ok := minor(h.Python.Python); ok {
			python[minor] = append(python[minor], h.Host)
		}
		if t := h.Python.Torch; t != "" {
			torch[t] = append(torch[t], h.Host)
		}
	}
	const remedy = "install the same on all hosts, or send an environment with plx launch --venv"
	found := split(python, Python, remedy, func(values string) string { return "python3 is not the same everywhere: " + values })
	return append(found, split(torch, Python, remedy, func(values string) string { return "torch is not the same everywhere: " + values })...)
}

// minor returns the first two numbers of a version.
func minor(version string) (string, bool) {
	parts := strings.SplitN(version, ".", 3)
	if len(parts) < 2 {
		return "", false
	}
	return parts[0] + "." + parts[1], true
}
