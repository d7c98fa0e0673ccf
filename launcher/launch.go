// Package launcher runs one program on many hosts as one job. It begins with
// the resource file (the list of hosts) and ends with the job's verdict.
//
//	code, err := launcher.Launch(ctx, launcher.Config{
//		Reach:    hosts.Reach{Hosts: lines}, // from package hostfile
//		Program:  "./train", Args: []string{"--learning-rate", "0.1"},
//		Terminal: console.Terminal{Stdout: os.Stdout, Stderr: os.Stderr},
//	}, signals)
//
// # The order of a launch
//
// This package only puts the stages of a launch in order; other packages do
// the work of each stage. The file prepare.go lists the stages: connect to the
// hosts, read local files and resolve the program, survey the hosts, place the
// tasks, build the binaries, name the job, provision the hosts, and save the
// job's record. After that, drive.go controls an attached job until its
// verdict. For a detached job, handover.go makes the agent on worker:0's host
// the driver.
//
// # What this package does not do
//
// It does not skip a host that cannot be used: the launch fails. It does not
// operate on existing jobs: package jobs does that.
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

// Launch runs a job until it ends, and returns plx's exit status. For a
// detached job, Launch returns after every task has started, and prints the
// job's id on stdout. The user's signals arrive on sig. The first signal ends
// the job, and tasks then have the grace period to stop. The second signal
// kills the tasks at once.
func Launch(ctx context.Context, cfg Config, sig <-chan os.Signal) (code int, err error) {
	cfg.Terminal.NoStatus = cfg.Terminal.NoStatus || cfg.JSON // with --json, a program reads the output, so the status line is off
	printer := console.NewPrinter(cfg.Terminal)
	l := &launch{printer: printer, ticket: reservation.NewTicket(), announced: func() {}, events: event.New()}
	if cfg.JSON {
		l.events.Add(stdout(printer))
	}
	begun := time.Now()
	defer func() { l.events.Ended(code, l.verdict, time.Since(begun), cmp.Or(err, l.failed)) }() // deferred first, so that it runs last and reports the final error
	if err := cfg.validate(); err != nil {
		return exit.Code(err), err
	}
	l.cfg, l.notifier = cfg, notify.New(cfg.Notify, printer)
	if cfg.DryRun {
		err := l.dryRun(ctx)
		return exit.Code(err), err
	}
	ending := stopLimits{grace: cfg.Grace, save: cfg.CheckpointTimeout}
	if cfg.Detach {
		ending.save = 0 // plx handles signals only until the detached job has started; until then there is nothing to save
	}
	ctx, l.signals = watch(ctx, sig, ending, l.printer)
	defer l.signals.close()
	defer func() {
		if err := l.close(); err != nil {
			l.printer.Printf("close: %v", err)
		}
	}()
	if err := l.prepare(ctx); err != nil {
		if ctx.Err() == nil { // no notification if the user has interrupted the launch
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
	if len(cfg.Hosts) == 0 { // without hosts, the cluster is embedded and all agents start on this machine
		turns = min(turns, 4*runtime.NumCPU())
	}
	d := &drive{launch: l, turns: make(chan struct{}, turns)}
	return d.run(ctx)
}

// stdout returns a function that writes events as JSON lines to stdout,
// between the tasks' output lines (--json). It ignores write errors, because
// the next output line meets the same error and stops the job.
func stdout(printer *console.Printer) event.Sink {
	return func(_ event.Kind, line []byte) { _ = printer.Display().Write(logs.Stdout, line) }
}

// EndEvent writes the event for the end of a launch whose command line was
// wrong. In that case Launch is never called.
func EndEvent(t console.Terminal, err error) {
	event.New(stdout(console.NewPrinter(t))).Ended(exit.Code(err), "", 0, err)
}

// stdinNote is printed if plx's standard input holds data, which the tasks
// cannot read.
const stdinNote = "note: standard input does not reach the tasks, theirs is empty: --copy FILE sends them a file"

// launch is the state of one call of Launch. The stages in prepare.go set the
// fields, which do not change after that.
type launch struct {
	cfg         Config
	printer     *console.Printer
	notifier    *notify.Notifier // runs the user's --notify command
	events      *event.Log
	verdict     string // reason why the job ended; "" while the job runs
	failed      error  // error that occurred after the verdict and was already printed; nil if none
	signals     *signals
	logDir      *logs.Dir         // local directory for the tasks' log files; nil without --log-dir
	checkpoints string            // name of the job's checkpoints: their directory under ~/.plx/ckpt on the hosts
	workdir     provision.Workdir // files that --workdir and --copy send
	program     entrypoint.Program
	source      artifacts.Source
	venv        provision.Venv // virtual environment that --venv sends
	announced   func()         // removes the file by which plx stop finds this launch (jobs.Announce)
	set         *hosts.Set
	placed      placement.Placement
	artifacts   *artifacts.Set
	job         string // id of the job
	created     time.Time
	secret      []byte             // shared secret with which the job's agents and tasks authenticate each other
	agents      []*hosts.AgentHost // agents of the hosts that run tasks, in the order of placed.Hosts
	revision    <-chan revision    // delivers the git revision of the program's directory
	planned     []string           // table of tasks, devices and addresses, one string per line
	ticket      string             // ticket (position) of this launch in the hosts' queues for GPUs
	reserved    *reservation.Held  // GPUs that are reserved for this job; nil if none
}

// open creates the --log-dir directory, checks that the --fetch directory is
// writable, and prepares the connections to all hosts.
func (l *launch) open(ctx context.Context) (err error) {
	if l.cfg.LogDir != "" {
		if l.logDir, err = logs.NewDir(l.cfg.LogDir); err != nil {
			return exit.Mistake(fmt.Errorf("--log-dir: %w", err), "--log-dir names a folder of this machine that you may write into, such as --log-dir logs")
		}
	}
	if l.cfg.Fetch != "" {
		if err := fetch.EnsureWritable(l.cfg.Fetch); err != nil {
			return exit.Mistake(fmt.Errorf("--fetch: %w", err), fetch.DirHint)
		}
	}
	l.set, err = hosts.Open(ctx, l.cfg.Reach, l.printer)
	return err
}

// read reads and hashes the files that --workdir, --copy and --venv send, and
// resolves the command that the tasks run.
func (l *launch) read(ctx context.Context) (err error) {
	l.printer.Lines(envsync.ValueNotes(l.cfg.Env, l.cfg.EnvFiles))
	if l.workdir, err = provision.ReadWorkdir(ctx, l.cfg.Workdir, l.cfg.KeepLinks, l.printer); err != nil {
		return err
	}
	if l.program, err = entrypoint.Resolve(ctx, l.cfg.source(), l.workdir.Folder); err != nil {
		return err
	}
	if l.cfg.ownVenv {
		l.printer.Printf("note: %s belongs to a virtual environment, which is sent to the hosts as with --venv %s", l.cfg.Program, l.cfg.Venv)
	}
	l.printer.Lines(l.program.Notes)
	if err := l.workdir.ReadCopies(ctx, l.cfg.Copy, l.printer); err != nil {
		return err
	}
	if l.cfg.AutoServers {
		l.cfg.NoServers = !l.program.Trainer
	}
	if l.cfg.AutoVisible {
		l.cfg.VisibleHost = l.program.SeesAllDevices
	}
	if l.venv, err = provision.ReadVenv(ctx, l.cfg.Venv, l.cfg.Workdir, l.printer); err != nil {
		return err
	}
	l.cfg.environ = l.venv.Importing(l.cfg.environ)
	return nil
}

// spec returns the job specification that plx sends to the agent on host i.
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
		Lease: l.cfg.Lease, Grace: l.cfg.Grace, Freeze: l.cfg.FreezeTimeout, Hang: l.cfg.Hang.Timeout, Detached: l.cfg.Detach, Logs: !l.cfg.Detach, SaveTime: l.cfg.CheckpointTimeout,
		SetupTime: l.cfg.SetupTime, Copied: l.workdir.Copied(), Workdir: l.workdir.ID(), Outputs: l.cfg.outputs,
		Claims: protocol.Claims(tasks), Placing: l.cfg.Options, StartTimeout: l.cfg.StartTimeout, Imports: l.cfg.CheckImport, Ticket: l.ticket,
	}, nil
}

// command returns the command that tasks on hosts of platform p execute.
func (l *launch) command(p envsync.Platform) protocol.Command {
	c := protocol.Command{Name: protocol.Raw(l.program.Command), Args: protocol.Raws(l.cfg.Args), Setup: protocol.Raw(l.cfg.Setup), SetupDone: l.cfg.Setup != "" && l.cfg.Workdir != "", Chdir: protocol.Raw(l.cfg.Chdir), Path: protocol.Raw(l.cfg.Path), Venv: l.venv.Installed()}
	if program, sent := l.artifacts.Program(p); sent {
		c.Name, c.Blob, c.Base = "", program.Sum, protocol.Raw(program.Name)
	}
	return c
}

// plan returns the plan of the job for its driver (the code that starts,
// watches and restarts tasks).
func (l *launch) plan() protocol.Plan {
	p := protocol.Plan{Job: l.job, Grace: l.cfg.Grace, Settle: settle, StartTimeout: l.cfg.StartTimeout, MaxTime: l.cfg.MaxTime,
		Lease: l.cfg.Lease, Restarts: l.cfg.Restarts, Hang: l.cfg.Hang, Foreign: !l.program.Trainer}
	p.Restarts.Revive = !l.cfg.Detach // Revive lets the driver start a new agent on a host. The driver of a detached job runs on a host of the job, from which it cannot log in to the other hosts.
	for i, a := range l.agents {
		p.Hosts = append(p.Hosts, protocol.HostPlan{Host: a.Name(), Tasks: l.placed.Hosts[i].Specs(), Drives: l.cfg.Detach && i == l.chief(),
			Folder: a.Folder, Line: a.Resource.WithoutSettings().String(), Binary: a.Binary})
	}
	return p
}

// taskNames returns the names of all tasks, such as "worker:0".
func taskNames(p placement.Placement) (all []string) {
	for _, h := range p.Hosts {
		for _, t := range h.Tasks {
			all = append(all, t.Task.String())
		}
	}
	return all
}

// chief returns the index of the host on which worker:0, the chief, starts.
func (l *launch) chief() int {
	return slices.IndexFunc(l.placed.Hosts, func(h placement.Host) bool {
		return slices.ContainsFunc(h.Tasks, func(t placement.Task) bool { return t.Task.IsChief() })
	})
}

// record returns the job's record for this machine, with the hosts of the
// launch. Later commands such as plx stop read the record.
func (l *launch) record() *jobs.Record {
	r := &jobs.Record{Job: l.job, Name: l.cfg.Name, Program: filepath.Base(l.cfg.Program), Created: l.created,
		Detached: l.cfg.Detach, Embedded: len(l.cfg.Hosts) == 0, Way: jobs.Way{Via: l.cfg.Via, Slurm: l.cfg.Slurm}, Launcher: os.Getpid(), Grace: l.cfg.Grace, Lease: l.cfg.Lease,
		Restarts: l.cfg.Restarts.Max > 0, Checkpoints: l.checkpoints, Saves: saves(l.cfg.Args), Outputs: l.cfg.outputs, Metrics: l.cfg.Metrics, Chief: l.chief(), Plan: l.planned}
	for i, a := range l.agents {
		r.Hosts = append(r.Hosts, hostRecord(a, l.placed.Hosts[i].Specs()))
	}
	return r
}

// report saves the verdict in the job's record and prints the verdict. out is
// the output that printed the job's logs; it is nil if plx printed none.
func (l *launch) report(r *jobs.Record, v protocol.Verdict, out *logstream.Output) {
	l.verdict = v.Reason
	if err := r.Finish(v); err != nil {
		l.printer.Error(err)
	}
	jobs.PrintVerdict(l.printer, r, *r.Verdict, out)
}

// close releases reserved GPUs, closes the connections, and removes binaries
// that were built on this machine.
func (l *launch) close() (err error) {
	l.reserved.Close()
	if l.set != nil {
		err = l.set.Close()
	}
	if l.artifacts != nil {
		err = errors.Join(err, l.artifacts.Close())
	}
	return err
}

// saves reports whether the arguments make plx's trainer write checkpoints.
func saves(args []string) bool {
	return slices.ContainsFunc(args, func(a string) bool {
		name, _, _ := strings.Cut(a, "=")
		return name == "-ckpt-dir" || name == "--ckpt-dir"
	})
}

func hostRecord(a *hosts.AgentHost, tasks []protocol.TaskSpec) jobs.HostRecord {
	h := jobs.HostRecord{Line: a.Resource.WithoutSettings().String(), Folder: a.Folder, Binary: a.Binary}
	for _, t := range tasks {
		h.Tasks = append(h.Tasks, t.Task.String())
	}
	return h
}
