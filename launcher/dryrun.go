package launcher

import (
	"cmp"
	"context"
	"fmt"
	"os"
	"slices"
	"strings"

	"github.com/plx-run/plx/hostfile"
	"github.com/plx-run/plx/launcher/console"
	"github.com/plx-run/plx/launcher/entrypoint"
	"github.com/plx-run/plx/launcher/placement"
	"github.com/plx-run/plx/launcher/provision"
)

// dryRun prints on stdout where the tasks would run and what plx would send.
// It connects to no host.
func (l *launch) dryRun(ctx context.Context) error {
	if err := l.read(ctx); err != nil {
		return err
	}
	cfg := l.cfg
	var machines []placement.Machine
	for _, h := range cfg.Lines() {
		machines = append(machines, placement.Machine{Host: h})
	}
	p, err := placement.Place(machines, cfg.Options)
	if err != nil {
		return err
	}
	if !p.Guessed { // skip the check if the number of GPUs is only guessed, because the real job may have more workers
		if err := checkPlacement(cfg, p); err != nil {
			return err
		}
	}
	var used []hostfile.Host
	for _, h := range p.Hosts {
		used = append(used, machines[h.Machine].Host)
	}
	if err := provision.CheckReachOffline(used); err != nil {
		return err
	}
	sent, err := l.sentLines(len(p.Hosts))
	if err != nil {
		return err
	}
	device := trainerDevice(cfg.Args, !l.program.Trainer)
	lines := append(planTable(device, machines, p), deviceNotes(device, machines, p)...)
	if p.Guessed {
		lines = append(lines, "hosts without ids get one worker for each GPU found there, or one on the CPU; later workers move up accordingly")
	}
	if cfg.Slurm.ID != "" {
		lines = append(lines, inSlurm(cfg))
	}
	lines = append(lines, choices(machines, p)...)
	lines = append(lines, foreignNotes(cfg, l.program, p, machines)...)
	if console.HasInput(cfg.Stdin) {
		lines = append(lines, stdinNote)
	}
	for _, line := range append(lines, sent...) {
		err = cmp.Or(err, cfg.Terminal.Print("%s", line))
	}
	return err
}

// planTable returns a table of the tasks and their devices, as lines. device
// is the value of the program's --device flag, from trainerDevice.
func planTable(device string, machines []placement.Machine, p placement.Placement) []string {
	head := []string{"TASK", "HOST", "DEVICE", "SEES GPUS"}
	if device != "" {
		head = append(head, "COMPUTES ON")
	}
	t := console.NewTable(head...)
	for _, h := range p.Hosts {
		m := machines[h.Machine]
		for _, task := range h.Tasks {
			row := []string{task.Task.String(), m.Name, task.Device, task.VisibleIDs}
			if device != "" {
				row = append(row, computesOn(device, m, task))
			}
			t.Row(row...)
		}
	}
	return t.Lines()
}

// choices returns lines about the settings that the user made for single
// hosts: network interface, data address and environment variables.
func choices(machines []placement.Machine, p placement.Placement) (lines []string) {
	for _, h := range p.Hosts {
		m := machines[h.Machine]
		if m.Interface != "" {
			lines = append(lines, fmt.Sprintf("host %s: data goes over network interface %s", m.Name, m.Interface))
		}
		if m.DataAddr != "" {
			lines = append(lines, fmt.Sprintf("host %s: its data address is %s", m.Name, m.DataAddr))
		}
		for _, e := range m.Env {
			name, _, _ := strings.Cut(e, "=") // print only the name, because the value may be a secret
			lines = append(lines, fmt.Sprintf("host %s: %s is set for its tasks alone", m.Name, name))
		}
	}
	return lines
}

// sentLines returns lines that describe what a launch would send to its hosts.
// on is the number of hosts.
func (l *launch) sentLines(on int) ([]string, error) {
	lines := []string{"send: plx itself, as agent, once per host"}
	switch l.program.Kind {
	case entrypoint.Local:
		info, err := os.Stat(l.cfg.Program)
		if err != nil {
			return nil, err
		}
		lines = append(lines, fmt.Sprintf("send: %s, at most %s", l.cfg.Program, provision.ToHosts(info.Size(), on)))
	case entrypoint.GoPackage:
		lines = append(lines, fmt.Sprintf("build and send: Go package %s", l.cfg.Program))
	case entrypoint.OnHost:
		line := fmt.Sprintf("run: %s, found on each host's PATH", l.cfg.Program)
		if l.program.AskHosts && l.cfg.AutoServers {
			line += "; if it links plx's trainer there, the job has servers too, as with --ps all"
		}
		lines = append(lines, line)
	case entrypoint.InWorkdir:
		lines = append(lines, fmt.Sprintf("run: %s, in the working directory", l.program.Command))
	case entrypoint.InVenv:
		lines = append(lines, fmt.Sprintf("run: %s, in the virtual environment", l.program.Command))
	}
	return slices.Concat(lines, l.workdir.Lines(on), l.venv.Lines(on)), nil
}
