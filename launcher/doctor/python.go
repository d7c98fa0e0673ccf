package doctor

import (
	"context"
	"slices"

	"github.com/plx-run/plx/launcher/placement"
)

// askPython runs python3 on each host with a working agent, in the way in
// which a task would run it. It does nothing unless Config.Python or
// Config.CheckImport is set.
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

// unimported adds the error that python3 is missing on a host, or cannot
// import the required modules.
func (v *visit) unimported(err error) {
	remedy := "install it there, or send an environment with plx launch --venv"
	if v.Python == nil {
		remedy = "install python3 there, or --path FOLDERS names where it is"
	}
	v.addError(Python, err, remedy)
}

// gpuWorkers returns the number of workers with a GPU that a job would have on
// the host.
func gpuWorkers(m placement.Machine) int {
	p, err := placement.Place([]placement.Machine{m}, placement.Options{})
	if err != nil || len(p.Hosts) == 0 {
		return 0 // the host is for parameter servers only
	}
	return p.Hosts[0].GPUWorkers()
}
