package launcher

import (
	"cmp"
	"context"
	"fmt"
	"io"
	"os"
	"strings"

	"github.com/charmbracelet/lipgloss/table"

	"github.com/plx-run/plx/envsync"
	"github.com/plx-run/plx/launcher/artifacts"
	"github.com/plx-run/plx/launcher/console"
	"github.com/plx-run/plx/launcher/exit"
	"github.com/plx-run/plx/launcher/hosts"
	"github.com/plx-run/plx/launcher/placement"
)

// dryRun prints the placement and the artifacts on stdout. It connects to no host.
func dryRun(ctx context.Context, cfg Config) error {
	printer := console.NewPrinter(cfg.Terminal)
	workdir, err := readWorkdir(ctx, cfg, printer)
	if err != nil {
		return err
	}
	printer.Lines(workdir.notes)
	env, err := readVenv(ctx, cfg, printer)
	if err != nil {
		return err
	}
	printer.Lines(env.notes())
	foreign, err := decideByProgram(ctx, &cfg)
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
	if !p.Guessed { // else the job may have more workers than are known here
		if err := suits(cfg, p); err != nil {
			return err
		}
	}
	sent, err := artifactLines(cfg, workdir, env, len(p.Hosts))
	if err != nil {
		return err
	}
	device := trainerDevice(cfg.Args, foreign)
	lines := append(planTable(device, machines, p), deviceNotes(device, machines, p)...)
	if p.Guessed {
		lines = append(lines, "hosts without ids get one worker for each GPU found there, or one on the CPU; later workers move up accordingly")
	}
	if cfg.Slurm.ID != "" {
		lines = append(lines, inSlurm(cfg))
	}
	lines = append(lines, choices(machines, p)...)
	if foreign {
		lines = append(lines, foreignNotes(cfg, p, machines)...)
	}
	if hasInput(cfg.Stdin) {
		lines = append(lines, stdinNote)
	}
	_, err = io.WriteString(cfg.Terminal.Stdout, strings.Join(append(lines, sent...), "\n")+"\n")
	return err
}

// planTable returns a table of the tasks and their devices, as lines. device is what
// trainerDevice returns.
func planTable(device string, machines []placement.Machine, p placement.Placement) []string {
	head := []string{"TASK", "HOST", "DEVICE", "CUDA_VISIBLE_DEVICES"}
	if device != "" {
		head = append(head, "COMPUTES ON")
	}
	t := console.NewTable(head...)
	for _, h := range p.Hosts {
		m := machines[h.Machine]
		for _, task := range h.Tasks {
			row := []string{task.Task.String(), m.Name, task.Device, task.Visible}
			if device != "" {
				row = append(row, computesOn(device, m, task))
			}
			t.Row(row...)
		}
	}
	return tableLines(t)
}

func tableLines(t *table.Table) []string {
	var text strings.Builder
	console.WriteTable(&text, t) // a Builder takes everything
	return strings.Split(strings.TrimRight(text.String(), "\n"), "\n")
}

// dataTable returns a table of the interface and the address of each host for data, as
// lines. It is for hosts that were asked, see findAddresses.
func dataTable(used []*hosts.Host) []string {
	t := console.NewTable("HOST", "INTERFACE", "DATA ADDRESS")
	for _, h := range used {
		addr, err := h.DataAddr()
		if err != nil {
			addr = "-" // its agent will report why
		}
		t.Row(h.Name(), cmp.Or(h.Resource.Interface, "as SSH"), addr)
	}
	return tableLines(t)
}

// choices lists which hosts send data over an interface or an address that the user chose.
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
			name, _, _ := strings.Cut(e, "=") // the value may be a secret
			lines = append(lines, fmt.Sprintf("host %s: %s is set for its tasks alone", m.Name, name))
		}
	}
	return lines
}

// artifactLines lists what a launch would send to each host.
func artifactLines(cfg Config, dir workdir, env environment, on int) ([]string, error) {
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
		lines = append(lines, fmt.Sprintf("send: %s, at most %s", cfg.Program, toHosts(info.Size(), on)))
	case artifacts.GoPackage:
		lines = append(lines, fmt.Sprintf("build and send: Go package %s", cfg.Program))
	case artifacts.OnHost:
		lines = append(lines, fmt.Sprintf("run: %s, found on each host's PATH", cfg.Program))
	}
	lines = append(append(lines, dir.lines(on)...), env.lines(on)...)
	for _, path := range cfg.Copy {
		info, err := os.Stat(path)
		if err == nil && !info.IsDir() && !info.Mode().IsRegular() {
			err = fmt.Errorf("%s is a %s", path, envsync.Special(info.Mode()))
		}
		if err != nil {
			return nil, exit.Mistake(fmt.Errorf("--copy: %w", err), artifacts.CopyHint)
		}
		lines = append(lines, "send: "+path+" into each task's folder")
	}
	return lines, nil
}
