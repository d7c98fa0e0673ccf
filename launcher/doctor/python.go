package doctor

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/plx-run/plx/launcher/placement"
	"github.com/plx-run/plx/launcher/protocol"
	"github.com/plx-run/plx/launcher/provision"
)

// pythonTime bounds python3 if it imports nothing.
const pythonTime = 20 * time.Second

// askPython runs python3 on the hosts that have the agent, if that is wanted.
func (e *examination) askPython(ctx context.Context) error {
	if !e.cfg.Python && len(e.cfg.CheckImport) == 0 {
		return nil
	}
	var with []*visit
	for _, v := range e.visits {
		if v.agentReport != nil {
			with = append(with, v)
		}
	}
	doing := "running python3"
	if len(e.cfg.CheckImport) > 0 {
		doing = "importing " + strings.Join(e.cfg.CheckImport, ", ")
	}
	tally := e.printer.NewTally(doing, len(with))
	defer tally.Stop()
	request := provision.ImportRequest{Modules: e.cfg.CheckImport, Command: protocol.Command{Path: protocol.Raw(e.cfg.Path)}}
	return eachVisit(ctx, with, func(_ int, v *visit) {
		tally.Begin(v.notes.host)
		defer tally.End(v.notes.host)
		v.python(ctx, request)
	})
}

// python runs python3 as a task of the host would.
func (v *visit) python(ctx context.Context, r provision.ImportRequest) {
	limit := provision.ImportTime
	if len(r.Modules) == 0 {
		limit = pythonTime
	}
	ctx, cancel := context.WithTimeoutCause(ctx, limit+pythonTime, fmt.Errorf("python3 does not answer within %v", limit+pythonTime))
	defer cancel()
	for _, pair := range v.host.Resource.Env {
		r.Env = append(r.Env, protocol.Raw(pair))
	}
	got, err := provision.AskImports(ctx, v.agent, r)
	if err != nil {
		v.notes.failed(Python, err, "install python3 there, or --path FOLDERS names where it is")
		return
	}
	v.answer = &got
	v.notes.judgePython(got, placement.Machine{Host: v.host.Resource, Report: &v.report})
}

// judgePython adds why a host's Python cannot do a job there.
func (n *notes) judgePython(got provision.Imported, m placement.Machine) {
	note, err := provision.JudgeImports(got, gpuWorkers(m), m.Report.Driver)
	if err != nil {
		n.failed(Python, err, "install it there, or send an environment with plx launch --venv")
	}
	if note != "" {
		n.add(Warning, Python, "install a torch that is built for CUDA", "%s", note)
	}
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
