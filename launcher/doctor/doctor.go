// Package doctor finds problems on the hosts of a resource file before a
// launch fails because of them.
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
// Examine prepares the hosts in the same way as a launch: it runs those steps
// of package provision that leave no files of a job on a host. Each step runs
// on all hosts at once and has a time limit. A failed step becomes a finding.
// The functions in agents.go ask the agents for reports and make them connect
// to each other.
//
// judge.go and compare.go are pure functions that derive findings from what
// the hosts report. A finding is an error if it makes a launch fail. All other
// findings are warnings.
//
// # What the package does not do
//
// It starts no job and repairs nothing. On a host it leaves only the directory
// ~/.plx with the agent, as every launch does.
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

// Config describes which hosts to examine, and which checks to run.
type Config struct {
	hosts.Reach
	Terminal          console.Terminal
	PortLow, PortHigh int // first and last port that firewalls allow for data between hosts; 0 and 0 allow any port

	Python      bool     // true to check that each host has python3
	CheckImport []string // modules that python3 on each host must be able to import; they imply Python
	Path        string   // directories to search before the hosts' PATH, separated by colons
}

// Diagnosis is the result of an examination.
type Diagnosis struct {
	Hosts        []HostFacts `json:"hosts"`    // facts about each host, in the order of the resource file
	Findings     []Finding   `json:"findings"` // problems found, errors first; never nil
	Reachability DialCounts  `json:"dialled"`
}

// DialCounts counts the connections that were tried between hosts.
type DialCounts struct {
	Hosts int `json:"hosts"` // number of hosts that listened at the address that tasks would use
	Pairs int `json:"pairs"` // number of ordered pairs of hosts in which the first host dialled the second
}

// HostFacts holds what was found out about one host.
type HostFacts struct {
	Host      string `json:"host"`                 // host name, with the port if the resource file has one
	ConnectMS int64  `json:"connect_ms,omitempty"` // time to connect and log in, in milliseconds
	Noise     int64  `json:"noise,omitempty"`      // number of bytes that shell start-up files print before each command
	Facts     *Facts `json:"facts,omitempty"`      // system properties and clock; nil if the host did not reply

	Agent  *protocol.HostReport `json:"agent,omitempty"`  // report of the plx agent; nil if no report arrived
	Python *provision.Imported  `json:"python,omitempty"` // result of checking python3 and its modules; nil if they were not checked or no reply came
}

// Time limits for one host. connectTime includes repeated attempts while the
// host's SSH server is overloaded and refuses connections.
const (
	connectTime = 3 * time.Minute
	sendTime    = 2 * time.Minute
)

// examination holds the state of one call of Examine.
type examination struct {
	cfg    Config
	recipe provision.Recipe
	visits []*visit // one visit for each host, in the order of the resource file
	placed []*visit // visits of the hosts on which the plx agent was installed
	dials  DialCounts
}

// visit holds what was found on one host. Only one goroutine at a time writes
// to it.
type visit struct {
	*provision.Target
	notes
	facts       *Facts               // system properties and clock; nil if the host did not reply
	agentReport *protocol.HostReport // report of the plx agent; nil if it did not reply
}

// Examine examines all hosts. A failure of a host is a finding, not an error.
// An error is returned for a wrong Config, or if ctx ends.
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
	cfg.KeepStartUpOutput = true
	printer := console.NewPrinter(cfg.Terminal)
	set, err := hosts.Open(ctx, cfg.Reach, printer)
	if err != nil {
		return Diagnosis{}, errors.Join(err, set.Close())
	}
	defer set.Close() // ignore an error of Close, because all replies have arrived
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

// placeAgents connects to all hosts, installs the plx agent there, and makes
// it search for GPUs.
func (e *examination) placeAgents(ctx context.Context) error {
	connected := e.stage(ctx, e.visits, e.recipe.Connect, (*visit).unreached)
	e.placed = e.stage(ctx, connected, e.recipe.Place, (*visit).unplaced)
	e.recipe.Set.Placed(context.Cause(ctx)) // Placed prints how much was sent, even after an error
	for _, v := range e.stage(ctx, e.placed, e.recipe.FindGPUs, (*visit).unprobed) {
		m := placement.Machine{Host: v.Resource, Report: &v.Report}
		v.judgeGPUs(m)
		v.GPUs = gpuWorkers(m)
	}
	return context.Cause(ctx)
}

// stage runs one step of a launch, such as connecting, on the given hosts. It
// calls note for each host that failed, and returns the other hosts.
func (e *examination) stage(ctx context.Context, on []*visit, run func(context.Context, []*provision.Target) error, note func(*visit, error)) (good []*visit) {
	var targets []*provision.Target
	for _, v := range on {
		targets = append(targets, v.Target)
	}
	_ = run(ctx, targets) // ignore the result, because each target has its own error
	for _, v := range on {
		if v.Err != nil {
			note(v, v.Err)
		} else {
			good = append(good, v)
		}
	}
	return good
}

// diagnosis collects the findings of all hosts.
func (e *examination) diagnosis() Diagnosis {
	d := Diagnosis{Reachability: e.dials}
	all := judgeThisMachine(len(e.visits), openFileLimit(), writable(os.Getenv("HOME")))
	var labels []string
	var machines []placement.Machine
	for i, m := range e.recipe.Set.Machines() {
		if v := e.visits[i]; slices.Contains(e.placed, v) {
			m.Host.Name = v.host
			machines = append(machines, m)
		}
	}
	for _, v := range e.visits {
		if v.StartUpOutput.Load() > 0 && !v.has(Home) { // if the home directory is missing (an error in Home), sshd itself may print a message about it
			v.add(Warning, Shell, "let start-up files such as .bashrc print only if the shell is interactive: case $- in *i*) ;; *) return ;; esac",
				"start-up files of the login shell print at each command, which breaks other programs")
		}
		if r := v.agentReport; r != nil && v.facts != nil {
			v.judgeReport(*r, site{line: v.Resource, root: v.facts.UID == 0, alone: len(e.visits) == 1 || v.Embedded})
		}
		d.Hosts = append(d.Hosts, HostFacts{Host: v.host, ConnectMS: v.DialTime.Milliseconds(), Noise: v.StartUpOutput.Load(), Facts: v.facts, Agent: v.agentReport, Python: v.Python})
		labels, all = append(labels, v.host), append(all, v.all...)
	}
	all = append(all, judgeMachines(machines)...)
	all = mergeClockFindings(d.Hosts, append(all, compare(d.Hosts)...))
	d.Findings = group(all, labels)
	return d
}

// Fails reports whether a launch would fail, that is, whether any finding is
// an error.
func (d Diagnosis) Fails() bool {
	return slices.ContainsFunc(d.Findings, func(f Finding) bool { return f.Level == Error })
}
