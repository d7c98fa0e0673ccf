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
// It makes the hosts ready as a launch does, by the stages of package provision that leave nothing of
// a job there, each on all hosts at once and each bounded in time. What fails on a host is what is
// found there. agents.go has the agents tell of their hosts and dial each other.
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
	"time"

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

// Bounds of one host. A dial that the server refuses for load is tried again within the
// first.
const (
	connectTime = 3 * time.Minute
	sendTime    = 2 * time.Minute
)

// examination is one call of Examine.
type examination struct {
	cfg     Config
	recipe  provision.Recipe
	visits  []*visit // in the order of the resource file
	placed  []*visit // on whose hosts plx runs
	dialled Dialled
}

// visit is what is found on one host, and written by one goroutine at a time.
type visit struct {
	*provision.Target
	notes
	facts       *Facts               // nil: the host did not answer
	agentReport *protocol.HostReport // nil: the agent has not answered
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
	cfg.KeepNoise = true
	printer := console.NewPrinter(cfg.Terminal)
	set, err := hosts.Open(ctx, cfg.Reach, printer)
	if err != nil {
		return Diagnosis{}, errors.Join(err, set.Close())
	}
	defer set.Close() // every answer has arrived
	e := newExamination(cfg, set, printer)
	for _, step := range []func(context.Context) error{e.placeAgents, e.askAgents, e.askPython} {
		if err := step(ctx); err != nil {
			return Diagnosis{}, err
		}
	}
	return e.diagnosis(), nil
}

func newExamination(cfg Config, set *hosts.Set, printer *console.Printer) *examination {
	e := &examination{cfg: cfg, recipe: provision.Recipe{Set: set, Printer: printer, ConnectTime: connectTime, PlaceTime: sendTime,
		Spec: protocol.Spec{Imports: cfg.CheckImport, Command: protocol.Command{Path: protocol.Raw(cfg.Path)}}}}
	for _, h := range set.Hosts {
		e.visits = append(e.visits, &visit{Target: &provision.Target{AgentHost: h.Agent()}, notes: notes{host: h.Label()}})
	}
	return e
}

// placeAgents connects to all hosts, places plx there, and has it look for GPUs.
func (e *examination) placeAgents(ctx context.Context) error {
	connected := e.stage(ctx, e.visits, e.recipe.Connect, (*visit).unreached)
	e.placed = e.stage(ctx, connected, e.recipe.Place, (*visit).unplaced)
	e.recipe.Set.Placed(context.Cause(ctx)) // some hosts may have got it
	for _, v := range e.stage(ctx, e.placed, e.recipe.FindGPUs, (*visit).unprobed) {
		m := placement.Machine{Host: v.Resource, Report: &v.Report}
		v.judgeGPUs(m)
		v.GPUs = gpuWorkers(m)
	}
	return context.Cause(ctx)
}

// stage is one of those by which a launch makes hosts ready. It notes why hosts have failed, and
// returns the others.
func (e *examination) stage(ctx context.Context, on []*visit, run func(context.Context, []*provision.Target) error, note func(*visit, error)) (good []*visit) {
	var targets []*provision.Target
	for _, v := range on {
		targets = append(targets, v.Target)
	}
	_ = run(ctx, targets) // each target has its error
	for _, v := range on {
		if v.Err != nil {
			note(v, v.Err)
		} else {
			good = append(good, v)
		}
	}
	return good
}

// diagnosis puts all findings together.
func (e *examination) diagnosis() Diagnosis {
	d := Diagnosis{Dialled: e.dialled}
	all := judgeHere(len(e.visits), openFiles(), writable(os.Getenv("HOME")))
	var labels []string
	var machines []placement.Machine
	for i, m := range e.recipe.Set.Machines() {
		if v := e.visits[i]; slices.Contains(e.placed, v) {
			m.Host.Name = v.host
			machines = append(machines, m)
		}
	}
	for _, v := range e.visits {
		if v.Noise.Load() > 0 && !v.has(Home) { // else sshd speaks of the home
			v.add(Warning, Shell, "let start-up files such as .bashrc print only if the shell is interactive: case $- in *i*) ;; *) return ;; esac",
				"start-up files of the login shell print at each command, which breaks other programs")
		}
		if r := v.agentReport; r != nil && v.facts != nil {
			v.judgeReport(*r, site{line: v.Resource, root: v.facts.UID == 0, alone: len(e.visits) == 1 || v.Embedded})
		}
		d.Hosts = append(d.Hosts, HostFacts{Host: v.host, ConnectMS: v.Dialled.Milliseconds(), Noise: v.Noise.Load(), Facts: v.facts, Agent: v.agentReport, Python: v.Python})
		labels, all = append(labels, v.host), append(all, v.all...)
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
