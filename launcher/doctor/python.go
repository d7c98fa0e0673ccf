package doctor

import (
	"context"
	"slices"

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
