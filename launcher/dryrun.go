package launcher

import (
	"context"
	"fmt"
	"io"
	"os"
	"strings"

	"github.com/plx-run/plx/launcher/artifacts"
	"github.com/plx-run/plx/launcher/console"
	"github.com/plx-run/plx/launcher/exit"
	"github.com/plx-run/plx/launcher/placement"
)

// dryRun prints the placement and the artifacts on stdout. It connects to no host.
func dryRun(ctx context.Context, cfg Config) error {
	foreign, err := decideServers(ctx, &cfg)
	if err != nil {
		return err
	}
	var machines []placement.Machine
	for _, h := range cfg.Lines() {
		machines = append(machines, placement.Machine{Host: h})
	}
	p, err := placement.Place(machines, cfg.Options)
	if err != nil {
		return err
	}
	sent, err := artifactLines(cfg)
	if err != nil {
		return err
	}
	lines := planTable(machines, p)
	if p.Guessed {
		lines = append(lines, "hosts without ids get one worker for each GPU found there, or one on the CPU; later workers move up accordingly")
	}
	if foreign {
		lines = append(lines, foreignNotes(cfg, p, machines)...)
	}
	_, err = io.WriteString(cfg.Terminal.Stdout, strings.Join(append(lines, sent...), "\n")+"\n")
	return err
}

// planTable returns a table of the tasks and their devices, as lines.
func planTable(machines []placement.Machine, p placement.Placement) []string {
	t := console.NewTable("TASK", "HOST", "DEVICE", "CUDA_VISIBLE_DEVICES")
	for _, h := range p.Hosts {
		for _, task := range h.Tasks {
			t.Row(task.Task.String(), machines[h.Machine].Name, task.Device, task.Visible)
		}
	}
	var text strings.Builder
	console.WriteTable(&text, t) // a Builder takes everything
	return strings.Split(strings.TrimRight(text.String(), "\n"), "\n")
}

// artifactLines lists what a launch would send to each host.
func artifactLines(cfg Config) ([]string, error) {
	lines := []string{"send: plx itself, as agent, once per host"}
	kind, err := artifacts.KindOf(cfg.Program)
	if err != nil {
		return nil, err
	}
	switch kind {
	case artifacts.Local:
		info, err := os.Stat(cfg.Program)
		if err != nil {
			return nil, err
		}
		lines = append(lines, fmt.Sprintf("send: %s (%s)", cfg.Program, console.Size(info.Size())))
	case artifacts.GoPackage:
		lines = append(lines, fmt.Sprintf("build and send: Go package %s", cfg.Program))
	case artifacts.OnHost:
		lines = append(lines, fmt.Sprintf("run: %s, found on each host's PATH", cfg.Program))
	}
	for _, path := range cfg.Copy {
		if _, err := os.Stat(path); err != nil {
			return nil, exit.Mistake(fmt.Errorf("--copy: %w", err), "")
		}
		lines = append(lines, "send: "+path+" into each task's folder")
	}
	return lines, nil
}
