// Package doctor finds ahead what would fail in a launch on the hosts of a resource file.
//
//	d, err := doctor.Examine(ctx, doctor.Config{
//		Reach:    hosts.Reach{Hosts: lines}, // from package hostfile
//		Terminal: console.Terminal{Stdout: os.Stdout, Stderr: os.Stderr},
//	})
//	if err != nil {
//		return err
//	}
//	err = d.Print(cfg.Terminal)
//
// It works in three steps, each on all hosts at once and each bounded in time:
//
//   - visit.go connects, places plx as a launch does, and has it look for GPUs. If plx cannot
//     run on a host, that is what is found there.
//   - agents.go has the agents tell of their hosts. They open data addresses, and each dials two
//     others.
//   - python.go runs python3, if that is wanted.
//
// What the hosts answer are facts, and judge.go and compare.go make findings of them: pure
// functions. A finding is an error if a launch fails because of it, else a warning.
//
// # What it refuses to do
//
// It starts no job and repairs nothing. It leaves on a host what every launch leaves:
// ~/.plx with the agent.
package doctor

import (
	"context"
	"errors"
	"os"
	"slices"

	"github.com/plx-run/plx/launcher/console"
	"github.com/plx-run/plx/launcher/exit"
	"github.com/plx-run/plx/launcher/hosts"
	"github.com/plx-run/plx/launcher/placement"
	"github.com/plx-run/plx/launcher/protocol"
	"github.com/plx-run/plx/launcher/provision"
)

// Config says which hosts to examine.
type Config struct {
	hosts.Reach
	Terminal          console.Terminal
	PortLow, PortHigh int // ports for data that the firewalls let through; 0 and 0: any

	Python      bool     // each host must have python3
	CheckImport []string // modules that its python3 must import; they imply Python
	Path        string   // folders before the hosts' PATH, separated by colons
}

// Diagnosis is what was found.
type Diagnosis struct {
	Hosts    []HostFacts `json:"hosts"`    // in the order of the resource file
	Findings []Finding   `json:"findings"` // never nil; errors first
	Dialled  Dialled     `json:"dialled"`
}

// Dialled is what was tried between hosts.
type Dialled struct {
	Hosts int `json:"hosts"` // that served others at their data address
	Pairs int `json:"pairs"` // of hosts of which the first dialled the second
}

// HostFacts is what is known of one host.
type HostFacts struct {
	Host      string `json:"host"`                 // name, with the port if the resource file gives one
	ConnectMS int64  `json:"connect_ms,omitempty"` // time to connect and to log in, in milliseconds
	Noise     int64  `json:"noise,omitempty"`      // bytes that start-up files of the shell print at each command
	Facts     *Facts `json:"facts,omitempty"`      // nil: the host did not answer

	Agent  *protocol.HostReport `json:"agent,omitempty"`  // nil: the agent was not sent, or did not answer
	Python *provision.Imported  `json:"python,omitempty"` // nil: it was not asked, or did not answer
}

// examination is one call of Examine.
type examination struct {
	cfg     Config
	printer *console.Printer
	set     *hosts.Set
	visits  []*visit // in the order of the resource file

	dialled Dialled
}

// Examine looks at all hosts. A host that fails is a finding; the error is that of the
// caller, or of ctx.
func Examine(ctx context.Context, cfg Config) (Diagnosis, error) {
	if len(cfg.Hosts) == 0 {
		return Diagnosis{}, exit.Mistake(errors.New("no hosts were named"), "plx doctor --hosts resources.txt")
	}
	var err error
	if cfg.CheckImport, err = provision.ModuleNames(cfg.CheckImport); err != nil {
		return Diagnosis{}, err
	}
	if cfg.Path != "" && !cfg.Python && len(cfg.CheckImport) == 0 {
		return Diagnosis{}, exit.Mistake(errors.New("--path says where python3 is, and python3 was not asked for"), "--python, or --check-import torch")
	}
	e := &examination{cfg: cfg, printer: console.NewPrinter(cfg.Terminal)}
	cfg.KeepNoise = true
	set, err := hosts.Open(ctx, cfg.Reach, e.printer)
	if err != nil {
		return Diagnosis{}, errors.Join(err, set.Close())
	}
	defer set.Close() // every answer has arrived
	e.set = set
	for _, h := range set.Hosts {
		e.visits = append(e.visits, &visit{host: h, notes: notes{host: h.Label()}})
	}
	for _, step := range []func(context.Context) error{e.visitAll, e.askAgents, e.askPython} {
		if err := step(ctx); err != nil {
			return Diagnosis{}, err
		}
	}
	return e.diagnosis(), nil
}

// diagnosis puts all findings together.
func (e *examination) diagnosis() Diagnosis {
	d := Diagnosis{Dialled: e.dialled}
	all := judgeHere(len(e.visits), openFiles(), writable(os.Getenv("HOME")))
	var labels []string
	var machines []placement.Machine
	for i, m := range e.set.Machines() {
		if v := e.visits[i]; v.ready {
			line := m.Host
			line.Name = v.notes.host
			machines = append(machines, placement.Machine{Host: line, Report: &v.report, ID: m.ID})
		}
	}
	for _, v := range e.visits {
		if v.host.Noise.Load() > 0 && !v.notes.has(Home) { // else sshd speaks of the home
			v.notes.add(Warning, Shell, "let start-up files such as .bashrc print only if the shell is interactive: case $- in *i*) ;; *) return ;; esac",
				"start-up files of the login shell print at each command, which breaks other programs")
		}
		if r := v.agentReport; r != nil && v.facts != nil {
			v.notes.judgeReport(*r, site{line: v.host.Resource, root: v.facts.UID == 0, alone: len(e.visits) == 1 || v.host.Embedded})
		}
		d.Hosts, labels = append(d.Hosts, v.known()), append(labels, v.notes.host)
		all = append(all, v.notes.all...)
	}
	all = append(all, judgeMachines(machines)...)
	all = mendClock(d.Hosts, append(all, compare(d.Hosts)...))
	d.Findings = group(all, labels)
	return d
}

// Fails reports whether a launch would fail.
func (d Diagnosis) Fails() bool {
	return slices.ContainsFunc(d.Findings, func(f Finding) bool { return f.Level == Error })
}
