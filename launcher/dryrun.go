package launcher

import (
	"fmt"
	"io"
	"os"

	"github.com/plx-run/plx/launcher/artifacts"
	"github.com/plx-run/plx/launcher/console"
	"github.com/plx-run/plx/launcher/exit"
	"github.com/plx-run/plx/launcher/placement"
)

// dryRun prints the placement and the artifacts on stdout. It connects to no host.
func dryRun(cfg Config) error {
	var machines []placement.Machine
	for _, h := range cfg.Lines() {
		machines = append(machines, placement.Machine{Host: h})
	}
	p, err := placement.Place(machines, cfg.Options)
	if err != nil {
		return err
	}
	k, err := artifacts.KindOf(cfg.Program)
	if err != nil {
		return err
	}
	w := cfg.Terminal.Stdout
	if err := printPlan(w, machines, p); err != nil {
		return err
	}
	return printArtifacts(cfg, w, k)
}

func printPlan(w io.Writer, machines []placement.Machine, p placement.Placement) error {
	t := console.NewTable("TASK", "HOST", "DEVICE", "CUDA_VISIBLE_DEVICES")
	for _, h := range p.Hosts {
		for _, task := range h.Tasks {
			t.Row(task.Task.String(), machines[h.Machine].Name, task.Device, task.Visible)
		}
	}
	if err := console.WriteTable(w, t); err != nil {
		return err
	}
	if p.Guessed {
		_, err := fmt.Fprintln(w, "hosts without ids get one worker for each GPU found there, or one on the CPU; later workers move up accordingly")
		return err
	}
	return nil
}

// printArtifacts lists what a launch would send to each host.
func printArtifacts(cfg Config, w io.Writer, k artifacts.Kind) error {
	lines := []string{"send: plx itself, as agent, once per host"}
	switch k {
	case artifacts.Local:
		info, err := os.Stat(cfg.Program)
		if err != nil {
			return err
		}
		lines = append(lines, fmt.Sprintf("send: %s (%s)", cfg.Program, console.Size(info.Size())))
	case artifacts.GoPackage:
		lines = append(lines, fmt.Sprintf("build and send: Go package %s", cfg.Program))
	case artifacts.OnHost:
		lines = append(lines, fmt.Sprintf("run: %s, found on each host's PATH", cfg.Program))
	}
	for _, path := range cfg.Copy {
		if _, err := os.Stat(path); err != nil {
			return exit.Mistake(fmt.Errorf("--copy: %w", err), "")
		}
		lines = append(lines, "send: "+path+" into each task's folder")
	}
	for _, line := range lines {
		if _, err := fmt.Fprintln(w, line); err != nil {
			return err
		}
	}
	return nil
}
