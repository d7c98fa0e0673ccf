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
// It is the only package that knows the order, and prepare.go lists it: open the ways to the
// hosts, read what is sent and decide what the tasks run, survey the hosts, place the tasks,
// pack and send, name the job, make the hosts ready, record. Then drive.go drives an attached job
// until its verdict, and handover.go hands a detached job over to the agent of the chief's
// host. Every stage is the work of another package.
//
// # What it refuses to do
//
// It does not leave out a host that cannot be used: the launch fails. It does not work on
// jobs that were launched before: package jobs does.
package launcher

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"time"

	"github.com/plx-run/plx/envsync"
	"github.com/plx-run/plx/launcher/artifacts"
	"github.com/plx-run/plx/launcher/console"
	"github.com/plx-run/plx/launcher/entrypoint"
	"github.com/plx-run/plx/launcher/event"
	"github.com/plx-run/plx/launcher/exit"
	"github.com/plx-run/plx/launcher/fetch"
	"github.com/plx-run/plx/launcher/hosts"
	"github.com/plx-run/plx/launcher/jobs"
	"github.com/plx-run/plx/launcher/logstream"
	"github.com/plx-run/plx/launcher/notify"
	"github.com/plx-run/plx/launcher/placement"
	"github.com/plx-run/plx/launcher/protocol"
	"github.com/plx-run/plx/launcher/provision"
	"github.com/plx-run/plx/launcher/reservation"
	"github.com/plx-run/plx/logs"
)

// Launch runs a job from its resource file to its verdict, and returns plx's exit
// status. A detached job is left after every task has started, and its id is printed on
// stdout. sig delivers the user's signals: the first ends the job with its grace, the
// second kills the tasks at once.
func Launch(ctx context.Context, cfg Config, sig <-chan os.Signal) (code int, err error) {
	cfg.Terminal.NoStatus = cfg.Terminal.NoStatus || cfg.JSON // a program reads what it shows
	printer := console.NewPrinter(cfg.Terminal)
	l := &launch{printer: printer, ticket: reservation.NewTicket(), announced: func() {}, events: event.New()}
	if cfg.JSON {
		l.events.Add(stdout(printer))
	}
	begun := time.Now()
	defer func() { l.events.Ended(code, l.verdict, time.Since(begun), cmp.Or(err, l.failed)) }() // after all else
	if err := cfg.validate(); err != nil {
		return exit.Code(err), err
	}
	l.cfg, l.notifier = cfg, notify.New(cfg.Notify, printer)
	if cfg.DryRun {
		err := l.dryRun(ctx)
		return exit.Code(err), err
	}
	ending := patience{grace: cfg.Grace, save: cfg.SaveTime}
	if cfg.Detach {
		ending.save = 0 // this process sees only the start
	}
	ctx, l.signals = watch(ctx, sig, ending, l.printer)
	defer l.signals.close()
	defer func() {
		if err := l.close(); err != nil {
			l.printer.Printf("close: %v", err)
		}
	}()
	if err := l.prepare(ctx); err != nil {
		if ctx.Err() == nil { // else the user has just ended it
			l.notifier.End(ctx, notify.Ended(l.job, cfg.Name, begun, protocol.Verdict{Code: exit.Code(err), Reason: err.Error()}))
		}
		return exit.Code(err), err
	}
	if console.HasInput(cfg.Stdin) {
		l.printer.Printf("%s", stdinNote)
	}
	if cfg.Detach {
		return l.handOver(ctx)
	}
	turns := hosts.FanOut
	if len(cfg.Hosts) == 0 { // all agents start on this machine
		turns = min(turns, 4*runtime.NumCPU())
	}
	d := &drive{launch: l, turns: make(chan struct{}, turns)}
	return d.run(ctx)
}

// stdout returns what writes events between the lines of tasks (--json). It ignores errors: the next
// line of a task meets them too, and a job whose output nobody reads is stopped.
func stdout(printer *console.Printer) event.Sink {
	return func(_ event.Kind, line []byte) { _ = printer.Display().Write(logs.Stdout, line) }
}

// EndEvent writes the only event of a launch that is wrong before Launch is called.
func EndEvent(t console.Terminal, err error) {
	event.New(stdout(console.NewPrinter(t))).Ended(exit.Code(err), "", 0, err)
}

// stdinNote is printed if something waits on standard input.
const stdinNote = "note: standard input does not reach the tasks, theirs is empty: --copy FILE sends them a file"

// launch is one run of Launch. Preparation writes the fields (prepare.go); then they
// stay as they are.
type launch struct {
	cfg         Config
	printer     *console.Printer
	notifier    *notify.Notifier // runs --notify
	events      *event.Log
	verdict     string // how the job has ended; empty: it has not
	failed      error  // what has failed after the verdict and was printed; nil: nothing
	signals     *signals
	logDir      *logs.Dir         // files of the tasks' output on this machine; nil: no --log-dir
	checkpoints string            // name of the job's checkpoints: a folder under ~/.plx/ckpt on the hosts
	workdir     provision.Workdir // what --workdir and --copy send
	program     entrypoint.Program
	source      artifacts.Source
	venv        provision.Venv // what --venv sends
	announced   func()         // ends what announce began
	set         *hosts.Set
	placed      placement.Placement
	artifacts   *artifacts.Set
	job         string // id of the job
	created     time.Time
	secret      []byte             // by which the job's agents and tasks authenticate each other
	agents      []*hosts.AgentHost // in the order of placed.Hosts
	revision    <-chan revision    // of the program's folder
	planned     []string           // the plan, as lines of a table
	ticket      string             // in the queues for GPUs
	booked      *reservation.Held  // GPUs that are held for the agents; nil: none
}

// open makes the folders of --log-dir and --fetch, and finds a way to every host.
func (l *launch) open(ctx context.Context) (err error) {
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
	l.set, err = hosts.Open(ctx, l.cfg.Reach, l.printer)
	return err
}

// read reads and hashes what --workdir, --copy and --venv send, and decides what the tasks run.
func (l *launch) read(ctx context.Context) (err error) {
	l.printer.Lines(envsync.Doubts(l.cfg.Env, l.cfg.EnvFiles))
	if l.workdir, err = provision.ReadWorkdir(ctx, l.cfg.Workdir, l.cfg.KeepLinks, l.printer); err != nil {
		return err
	}
	if l.program, err = entrypoint.Resolve(ctx, l.cfg.source(), l.workdir.Folder); err != nil {
		return err
	}
	if l.cfg.ownVenv {
		l.printer.Printf("note: %s is of a virtual environment, which is sent as with --venv %s", l.cfg.Program, l.cfg.Venv)
	}
	l.printer.Lines(l.program.Notes)
	if err := l.workdir.ReadCopies(ctx, l.cfg.Copy, l.printer); err != nil {
		return err
	}
	if l.cfg.AutoServers {
		l.cfg.NoServers = !l.program.Trainer
	}
	if l.cfg.AutoVisible {
		l.cfg.VisibleHost = l.program.SeesHost
	}
	if l.venv, err = provision.ReadVenv(ctx, l.cfg.Venv, l.cfg.Workdir, l.printer); err != nil {
		return err
	}
	l.cfg.environ = l.venv.Importing(l.cfg.environ)
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
		Command: l.command(a.Facts.Platform), Env: protocol.Raws(slices.Concat(l.cfg.environ, own)), OwnEnv: len(own), LogLevel: l.cfg.LogLevel, LogLimit: l.cfg.LogLimit, Metrics: l.cfg.Metrics, Secret: l.secret, TLS: l.cfg.TLS,
		Tasks: tasks, WorldSize: l.placed.Workers, Bind: !l.cfg.NoBind,
		DataAddr: addr, Interface: a.Resource.Interface, JobInterface: l.cfg.Interface, PortLow: l.cfg.PortLow, PortHigh: l.cfg.PortHigh,
		Lease: l.cfg.Lease, Grace: l.cfg.Grace, Freeze: l.cfg.Freeze, Hang: l.cfg.Hang.Timeout, Detached: l.cfg.Detach, Logs: !l.cfg.Detach, SaveTime: l.cfg.SaveTime,
		SetupTime: l.cfg.SetupTime, Copied: l.workdir.Copied(), Workdir: l.workdir.ID(), Outputs: l.cfg.outputs,
		Claims: protocol.Claims(tasks), Placing: l.cfg.Options, StartTimeout: l.cfg.StartTimeout, Imports: l.cfg.CheckImport, Ticket: l.ticket,
	}, nil
}

// command returns what tasks on hosts of platform p execute.
func (l *launch) command(p envsync.Platform) protocol.Command {
	c := protocol.Command{Name: protocol.Raw(l.program.Command), Args: protocol.Raws(l.cfg.Args), Setup: protocol.Raw(l.cfg.Setup), SetupDone: l.cfg.Setup != "" && l.cfg.Workdir != "", Chdir: protocol.Raw(l.cfg.Chdir), Path: protocol.Raw(l.cfg.Path), Venv: l.venv.Installed()}
	if program, sent := l.artifacts.Program(p); sent {
		c.Name, c.Blob, c.Base = "", program.Sum, protocol.Raw(program.Name)
	}
	return c
}

// plan returns what the job's driver is told.
func (l *launch) plan() protocol.Plan {
	p := protocol.Plan{Job: l.job, Grace: l.cfg.Grace, Settle: settle, StartTimeout: l.cfg.StartTimeout, MaxTime: l.cfg.MaxTime,
		Lease: l.cfg.Lease, Restarts: l.cfg.Restarts, Hang: l.cfg.Hang, Foreign: !l.program.Trainer}
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
		Restarts: l.cfg.Restarts.Max > 0, Checkpoints: l.checkpoints, Saves: saves(l.cfg.Args), Outputs: l.cfg.outputs, Metrics: l.cfg.Metrics, Chief: l.chief(), Plan: l.planned}
	for i, a := range l.agents {
		r.Hosts = append(r.Hosts, hostRecord(a, l.placed.Hosts[i].Specs()))
	}
	return r
}

// report records and prints the verdict. out, which may be nil, has printed the logs.
func (l *launch) report(r *jobs.Record, v protocol.Verdict, out *logstream.Output) {
	l.verdict = v.Reason
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
