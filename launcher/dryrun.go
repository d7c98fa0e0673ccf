package launcher

import (
	"fmt"
	"io"
	"os"

	"github.com/plx-run/plx/hostfile"
)

// dryRun prints the plan on stdout and touches no host.
func (l *launch) dryRun() error {
	var machines []machine
	for _, h := range l.dryHosts() {
		machines = append(machines, machine{Host: h})
	}
	p, err := place(machines, l.cfg.placing())
	if err != nil {
		return err
	}
	k, err := kindOf(l.cfg.Program)
	if err != nil {
		return err
	}
	w := l.cfg.Terminal.Stdout
	if err := printPlan(w, machines, p); err != nil {
		return err
	}
	return l.printCargo(w, k)
}

func (l *launch) dryHosts() []hostfile.Host {
	if len(l.cfg.Hosts) > 0 {
		return l.cfg.Hosts
	}
	var hosts []hostfile.Host
	for i := range l.cfg.LocalHosts {
		hosts = append(hosts, hostfile.Host{Name: fmt.Sprintf("127.0.0.%d", i+2),
			Devices: hostfile.Devices{Kind: hostfile.CPUs, Count: l.cfg.LocalWorkers}})
	}
	return hosts
}

func printPlan(w io.Writer, machines []machine, p placement) error {
	t := newTable("TASK", "HOST", "DEVICE", "CUDA_VISIBLE_DEVICES")
	guess := false
	for _, h := range p.hosts {
		for _, task := range h.tasks {
			if task.device == unknown.String() {
				guess = true
			}
			t.Row(task.task.String(), machines[h.machine].Name, task.device, task.visible)
		}
	}
	if err := writeTable(w, t); err != nil {
		return err
	}
	if guess {
		_, err := fmt.Fprintln(w, "hosts without ids get one worker for each GPU found there, or one on the CPU; later workers move up accordingly")
		return err
	}
	return nil
}

// printCargo lists what would be sent to each host.
func (l *launch) printCargo(w io.Writer, k kind) error {
	lines := []string{"send: plx itself, as agent, once per host"}
	switch k {
	case local:
		info, err := os.Stat(l.cfg.Program)
		if err != nil {
			return err
		}
		lines = append(lines, fmt.Sprintf("send: %s (%s)", l.cfg.Program, size(info.Size())))
	case goPackage:
		lines = append(lines, fmt.Sprintf("build and send: Go package %s", l.cfg.Program))
	case onHost:
		lines = append(lines, fmt.Sprintf("run: %s, found on each host's PATH", l.cfg.Program))
	}
	for _, path := range l.cfg.Copy {
		if _, err := os.Stat(path); err != nil {
			return Mistake(fmt.Errorf("--copy: %w", err), "")
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
