// Package launcher runs one program on many hosts as one job, from the resource file to
// the verdict.
//
//	code, err := launcher.Launch(ctx, launcher.Config{
//		Reach:    hosts.Reach{Hosts: lines}, // from package hostfile
//		Program:  "./train", Args: []string{"--learning-rate", "0.1"},
//		Terminal: console.Terminal{Stdout: os.Stdout, Stderr: os.Stderr},
//	}, signals)
//
// # The order of a launch
//
// It is the only package that knows the order. First it opens the hosts: a way to them that
// leads nowhere is named before anything is read, built or sent. Prepare (prepare.go): survey
// the hosts, place the tasks, pack and send the artifacts, name the job. Then drive.go
// drives an attached job until its verdict, and handover.go hands a detached job over to
// the agent of the chief's host. Every step is the work of another package.
//
// # What it refuses to do
//
// It does not leave out a host that cannot be used: the launch fails. It does not work on
// jobs that were launched before: package jobs does.
package launcher

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/plx-run/plx/envsync"
	"github.com/plx-run/plx/launcher/artifacts"
	"github.com/plx-run/plx/launcher/booking"
	"github.com/plx-run/plx/launcher/console"
	"github.com/plx-run/plx/launcher/exit"
	"github.com/plx-run/plx/launcher/fetch"
	"github.com/plx-run/plx/launcher/hosts"
	"github.com/plx-run/plx/launcher/jobs"
	"github.com/plx-run/plx/launcher/logstream"
	"github.com/plx-run/plx/launcher/placement"
	"github.com/plx-run/plx/launcher/protocol"
	"github.com/plx-run/plx/logs"
)

// Launch runs a job from its resource file to its verdict, and returns plx's exit
// status. A detached job is left after every task has started, and its id is printed on
// stdout. sig delivers the user's signals: the first ends the job with its grace, the
// second kills the tasks at once.
func Launch(ctx context.Context, cfg Config, sig <-chan os.Signal) (code int, err error) {
	if err := cfg.validate(); err != nil {
		return exit.Code(err), err
	}
	if cfg.DryRun {
		err := dryRun(ctx, cfg)
		return exit.Code(err), err
	}
	printer := console.NewPrinter(cfg.Terminal)
	ctx, signals := watch(ctx, sig, cfg.ending(), printer)
	defer signals.close()
	l := &launch{cfg: cfg, printer: printer, signals: signals, ticket: booking.NewTicket()}
	defer func() {
		if err := l.close(); err != nil {
			l.printer.Printf("close: %v", err)
		}
	}()
	if err := l.openFolders(); err != nil {
		return exit.Code(err), err
	}
	if l.set, err = hosts.Open(ctx, cfg.Reach, l.printer); err != nil {
		return exit.Code(err), err
	}
	if err := l.readFolders(ctx); err != nil {
		return exit.Code(err), err
	}
	announced := func() {}
	if cfg.Submission == "" { // plx stop finds a submission, and no other launch before its job is recorded
		if announced, err = jobs.Announce(cfg.Name, filepath.Base(cfg.Program)); err != nil {
			return exit.Code(err), fmt.Errorf("record the launch: %w", err)
		}
	}
	err = l.prepare(ctx)
	announced()
	if err != nil {
		return exit.Code(err), err
	}
	if hasInput(cfg.Stdin) {
		l.printer.Printf("%s", stdinNote)
	}
	if cfg.Detach {
		return l.handOver(ctx)
	}
	d := &drive{launch: l, turns: make(chan struct{}, startsAtOnce(len(cfg.Hosts) == 0))}
	return d.run(ctx)
}

// launch is one run of Launch. Preparation writes the fields (prepare.go); then they
// stay as they are.
type launch struct {
	cfg         Config
	printer     *console.Printer
	signals     *signals
	foreign     bool        // the program does not link plx's trainer
	logDir      *logs.Dir   // files of the tasks' output on this machine; nil: no --log-dir
	checkpoints string      // name of the job's checkpoints: a folder under ~/.plx/ckpt on the hosts
	environment environment // what --venv sends
	workdir     workdir     // what --workdir sends; zero: nothing
	set         *hosts.Set
	placed      placement.Placement
	artifacts   *artifacts.Set
	job         string // id of the job
	created     time.Time
	secret      []byte             // by which the job's agents and tasks authenticate each other
	agents      []*hosts.AgentHost // in the order of placed.Hosts
	planned     []string           // the plan, as lines of a table
	ticket      string             // in the queues for GPUs
	booked      *booking.Held      // GPUs that are held for the agents; nil: none
}

// openFolders makes the folders of --log-dir and --fetch, before any host is touched.
func (l *launch) openFolders() (err error) {
	if l.cfg.LogDir != "" {
		if l.logDir, err = logs.NewDir(l.cfg.LogDir); err != nil {
			return exit.Mistake(fmt.Errorf("--log-dir: %w", err), "--log-dir names a folder of this machine that you may write into, such as --log-dir logs")
		}
	}
	if l.cfg.Fetch != "" {
		if err := fetch.Writable(l.cfg.Fetch); err != nil {
			return exit.Mistake(fmt.Errorf("--fetch: %w", err), fetch.DirHint)
		}
	}
	return nil
}

// readFolders reads and hashes the folders of --workdir and --venv.
func (l *launch) readFolders(ctx context.Context) (err error) {
	if l.workdir, err = readWorkdir(ctx, l.cfg, l.printer); err != nil {
		return err
	}
	l.printer.Lines(l.workdir.notes)
	if l.environment, err = readVenv(ctx, l.cfg, l.printer); err != nil {
		return err
	}
	l.cfg.environ = l.environment.importing(l.cfg.environ)
	l.printer.Lines(l.environment.notes())
	return nil
}

// spec returns what host i's agent is told.
func (l *launch) spec(i int, a *hosts.AgentHost, tasks []protocol.TaskSpec) (protocol.Spec, error) {
	addr, err := a.DataAddr()
	if err != nil {
		return protocol.Spec{}, err
	}
	own := a.Resource.Env
	return protocol.Spec{
		Job: l.job, Name: l.cfg.Name, Checkpoints: l.checkpoints, Host: a.Name(), HostIndex: i, Folder: a.Folder,
		Command: l.command(a.Facts.Platform), Env: raws(slices.Concat(l.cfg.environ, own)), OwnEnv: len(own), LogLevel: l.cfg.LogLevel, LogLimit: l.cfg.LogLimit, Secret: l.secret, TLS: l.cfg.TLS,
		Tasks: tasks, WorldSize: l.placed.Workers, Bind: !l.cfg.NoBind,
		DataAddr: addr, Interface: a.Resource.Interface, JobInterface: l.cfg.Interface, PortLow: l.cfg.PortLow, PortHigh: l.cfg.PortHigh,
		Lease: l.cfg.Lease, Grace: l.cfg.Grace, Freeze: l.cfg.Freeze, Hang: l.cfg.Hang.Timeout, Detached: l.cfg.Detach, SaveTime: l.cfg.SaveTime,
		SetupTime: l.cfg.SetupTime, Archives: l.artifacts.Archives(), Workdir: l.workdir.id(), Source: l.workdir.source(), Outputs: l.cfg.outputs,
		Claims: protocol.Claims(tasks), ShareGPUs: l.cfg.ShareGPUs, Ticket: l.ticket, Booked: l.booked.Socket(a),
	}, nil
}

// command returns what tasks on hosts of platform p execute.
func (l *launch) command(p envsync.Platform) protocol.Command {
	c := protocol.Command{Args: raws(l.cfg.Args), Setup: protocol.Raw(l.cfg.Setup), SetupDone: l.cfg.Setup != "" && l.cfg.Workdir != "", Chdir: protocol.Raw(l.cfg.Chdir), Path: protocol.Raw(l.cfg.Path), Venv: l.environment.installed()}
	if l.environment.program != "" {
		c.Name = protocol.Raw(l.environment.program)
	} else if l.workdir.program != "" {
		c.Name = protocol.Raw(l.workdir.program)
	} else if program, sent := l.artifacts.Program(p); sent {
		c.Blob, c.Base = program.Sum, protocol.Raw(program.Name)
	} else {
		c.Name = protocol.Raw(l.cfg.Program)
	}
	return c
}

func raws(texts []string) (rs []protocol.Raw) {
	for _, t := range texts {
		rs = append(rs, protocol.Raw(t))
	}
	return rs
}

// plan returns what the job's driver is told.
func (l *launch) plan() protocol.Plan {
	p := protocol.Plan{Job: l.job, Grace: l.cfg.Grace, Settle: settle, StartTimeout: l.cfg.StartTimeout, MaxTime: l.cfg.MaxTime,
		Lease: l.cfg.Lease, Restarts: l.cfg.Restarts, Hang: l.cfg.Hang, Foreign: l.foreign}
	p.Restarts.Revive = !l.cfg.Detach // to start an agent, a driver must reach the hosts over SSH
	for i, a := range l.agents {
		p.Hosts = append(p.Hosts, protocol.HostPlan{Host: a.Name(), Tasks: l.placed.Hosts[i].Specs(), Drives: l.cfg.Detach && i == l.chief(),
			Folder: a.Folder, Line: a.Resource.Bare().String(), Binary: a.Binary})
	}
	return p
}

// taskNames returns the names of all tasks.
func taskNames(p placement.Placement) (all []string) {
	for _, h := range p.Hosts {
		for _, t := range h.Tasks {
			all = append(all, t.Task.String())
		}
	}
	return all
}

// chief returns the index of the host that worker:0 starts on.
func (l *launch) chief() int {
	return slices.IndexFunc(l.placed.Hosts, func(h placement.Host) bool {
		return slices.ContainsFunc(h.Tasks, func(t placement.Task) bool { return t.Task.IsChief() })
	})
}

// record returns what this machine remembers of the job as it was launched.
func (l *launch) record() *jobs.Record {
	r := &jobs.Record{Job: l.job, Name: l.cfg.Name, Program: filepath.Base(l.cfg.Program), Created: l.created,
		Detached: l.cfg.Detach, Embedded: len(l.cfg.Hosts) == 0, Way: jobs.Way{Via: l.cfg.Via, Slurm: l.cfg.Slurm}, Launcher: os.Getpid(), Grace: l.cfg.Grace, Lease: l.cfg.Lease,
		Restarts: l.cfg.Restarts.Max > 0, Checkpoints: l.checkpoints, Saves: saves(l.cfg.Args), Outputs: l.cfg.outputs, Chief: l.chief(), Plan: l.planned}
	for i, a := range l.agents {
		r.Hosts = append(r.Hosts, hostRecord(a, l.placed.Hosts[i].Specs()))
	}
	return r
}

// report records and prints the verdict. out, which may be nil, has printed the logs.
func (l *launch) report(r *jobs.Record, v protocol.Verdict, out *logstream.Output) {
	if err := r.Finish(v); err != nil {
		l.printer.Error(err)
	}
	jobs.PrintVerdict(l.printer, r, *r.Verdict, out)
}

// close closes the connections, and removes what was built on this machine.
func (l *launch) close() (err error) {
	l.booked.Close()
	if l.set != nil {
		err = l.set.Close()
	}
	if l.artifacts != nil {
		err = errors.Join(err, l.artifacts.Close())
	}
	return err
}

// saves reports whether the program is told to make checkpoints.
func saves(args []string) bool {
	return slices.ContainsFunc(args, func(a string) bool {
		name, _, _ := strings.Cut(a, "=")
		return name == "-ckpt-dir" || name == "--ckpt-dir"
	})
}

func hostRecord(a *hosts.AgentHost, tasks []protocol.TaskSpec) jobs.HostRecord {
	h := jobs.HostRecord{Line: a.Resource.Bare().String(), Folder: a.Folder, Binary: a.Binary}
	for _, t := range tasks {
		h.Tasks = append(h.Tasks, t.Task.String())
	}
	return h
}
