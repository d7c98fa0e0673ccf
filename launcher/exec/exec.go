// Package exec runs one command on all hosts at the same time and prints the
// output. It prints hosts with the same output together at the end, or prints
// each line at once.
//
//	code, err := exec.Run(ctx, exec.Config{
//		Reach:    hosts.Reach{Hosts: lines}, // from package hostfile
//		Program:  "uname", Args: []string{"-r"},
//		Terminal: console.Terminal{Stdout: os.Stdout, Stderr: os.Stderr},
//	}, signals)
//
// On each host, an agent runs the command. It kills the command and all that
// the command has started in three cases: this process ends, this process
// requests it, or no message arrives for the duration of the lease.
//
// # What it refuses to do
//
// The package starts no job: commands have no ranks, plx keeps no log, and no
// process of the command survives it. It sends no program: the command must
// exist on the hosts.
package exec

import (
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/plx-run/plx/envsync"
	"github.com/plx-run/plx/launcher/console"
	"github.com/plx-run/plx/launcher/exit"
	"github.com/plx-run/plx/launcher/hosts"
	"github.com/plx-run/plx/launcher/protocol"
	"github.com/plx-run/plx/launcher/transport"
	"github.com/plx-run/plx/logs"
)

// Config describes the command, the hosts and how to print the output.
type Config struct {
	hosts.Reach
	Terminal console.Terminal
	Stdin    *os.File // standard input of plx, which the command does not get; if it has data, plx prints a note; nil means no input

	Program string   // command on the hosts' PATH, or path of a file on the hosts
	Args    []string // arguments of the command; no shell interprets them

	Env      []string // variables to set: NAME=VALUE, or NAME to copy this machine's value
	EnvFiles []string
	Chdir    string // folder on the hosts to run in; "" means the user's home folder
	Setup    string // shell line to run before the command; "" for none
	Path     string // folders to put before the hosts' PATH, separated by colons; "" for none

	MaxTime time.Duration // how long the command may run on each host; 0 means no limit
	Lease   time.Duration // how long a host keeps the command running without a message from this process
	Grace   time.Duration // time between asking the command to end and killing it; 0 kills the command at once
	JSON    bool          // print all results as one JSON array
	Stream  bool          // print each line when it arrives, with the name of its host before it
}

// minLease is the shortest allowed lease. A host kills the command if no
// renewal arrives during the lease. With a shorter lease, renewals could
// arrive too late on a busy host.
const minLease = 5 * time.Second

// request validates the configuration and returns the request that is sent to
// the agents.
func (c Config) request() (protocol.ExecRequest, error) {
	for _, check := range []struct {
		wrong bool
		err   error
	}{
		{c.Program == "", exit.Mistake(errors.New("no command was named"), "plx exec --hosts resources.txt -- uname -r")},
		{len(c.Hosts) == 0, exit.Mistake(errors.New("no hosts were named"), "--hosts FILE, or --host LINE")},
		{c.Lease < minLease, exit.Mistake(fmt.Errorf("--lease %s is too short, at least %s is needed", c.Lease, minLease), "--lease %s", minLease)},
		{c.JSON && c.Stream, exit.Mistake(errors.New("--json and --stream exclude each other"), "--json prints after the last host has ended, --stream at once")},
		{c.MaxTime < 0, exit.Mistake(errors.New("--max-time is negative"), "--max-time 10m, or leave it out for no limit")},
		{c.Grace < 0, exit.Mistake(errors.New("--grace is negative"), "--grace 0s kills the command at once")},
		{slices.ContainsFunc(append(c.Args, c.Program), func(arg string) bool { return strings.ContainsRune(arg, 0) }),
			exit.Mistake(errors.New("an argument has a NUL byte"), "write it to a file: no program can get such an argument")},
	} {
		if check.wrong {
			return protocol.ExecRequest{}, check.err
		}
	}
	environ, err := envsync.Environment(c.Env, c.EnvFiles, os.LookupEnv)
	if err != nil {
		return protocol.ExecRequest{}, exit.Mistake(err, envsync.EnvironmentHint)
	}
	return protocol.ExecRequest{
		Command: protocol.Command{Name: protocol.Raw(c.Program), Args: raws(c.Args), Setup: protocol.Raw(c.Setup), Chdir: protocol.Raw(c.Chdir), Path: protocol.Raw(c.Path)},
		Env:     raws(environ), Lease: c.Lease, Grace: c.Grace, MaxTime: c.MaxTime,
	}, nil
}

func raws(texts []string) (rs []protocol.Raw) {
	for _, t := range texts {
		rs = append(rs, protocol.Raw(t))
	}
	return rs
}

// Run runs the command on all hosts and prints the output. It runs the command
// on at most hosts.FanOut hosts at the same time. It returns the highest exit
// status of all hosts. A host that could not be reached or was lost counts as
// exit.CodePlx. sig delivers the user's signals: the first signal asks the
// command to end on all hosts, the second kills the command.
func Run(ctx context.Context, cfg Config, sig <-chan os.Signal) (code int, err error) {
	request, err := cfg.request()
	if err != nil {
		return exit.Code(err), err
	}
	r := &run{cfg: cfg, request: request, printer: console.NewPrinter(cfg.Terminal)}
	r.printer.Lines(envsync.ValueNotes(cfg.Env, cfg.EnvFiles))
	ctx, r.interrupts = watch(ctx, sig, cfg.Grace, r.printer)
	defer r.interrupts.close()
	if r.set, err = hosts.Open(ctx, cfg.Reach, r.printer); err != nil {
		return exit.Code(err), errors.Join(err, r.set.Close())
	}
	defer r.set.Close() // ignore the error: all results have been received
	for _, h := range r.set.Hosts {
		r.results = append(r.results, newResult(h, len(r.set.Hosts)))
	}
	if err := r.prepare(ctx); err != nil {
		return exit.Code(err), err
	}
	if console.HasInput(cfg.Stdin) {
		r.printer.Printf("%s", stdinNote)
	}
	if cfg.Stream {
		var names []string
		for _, h := range r.set.Hosts {
			names = append(names, h.Label())
		}
		r.live = logs.NewPrinter(r.printer.Display(), logs.Options{Hosts: names, NoTasks: true})
	}
	r.everywhere(ctx)
	if code := r.interrupts.status.Load(); code != 0 {
		return int(code), r.print()
	}
	for _, res := range r.results {
		code = max(code, res.code())
	}
	return code, r.print()
}

// stdinNote is printed if data waits on the standard input of plx.
const stdinNote = "note: standard input is not sent to the command, which reads an empty input; bash -c 'LINE' runs a shell line"

// run is the state of one call of Run.
type run struct {
	cfg        Config
	request    protocol.ExecRequest
	printer    *console.Printer
	interrupts *interrupts
	set        *hosts.Set
	results    []*result     // result of each host, in the order of the resource file
	live       *logs.Printer // prints each line when it arrives; nil if results are printed at the end
}

// prepare connects to the hosts and starts the agent on each. If a host fails,
// prepare stores the error in the host's result and continues with the other
// hosts.
func (r *run) prepare(ctx context.Context) error {
	r.each("probing", func(res *result, tell *console.HostProgress) error {
		if err := res.host.Dial(ctx); err != nil { // show nothing here, because Dial shows its own progress
			return err
		}
		tell.Begin(res.host.Label())
		return res.host.Survey(ctx)
	})
	r.set.Placed(nil)
	return context.Cause(ctx)
}

// everywhere runs the command on all hosts that have not failed, and stores
// its exit status in their results.
func (r *run) everywhere(ctx context.Context) {
	r.each("running", func(res *result, tell *console.HostProgress) error {
		tell.Begin(res.host.Label())
		if r.interrupts.status.Load() != 0 {
			return errors.New("interrupted before the command began")
		}
		err := r.command(res.host.Agent(), res, tell)
		if status := transport.ExitStatus(err); status > 0 {
			res.status = status
			return nil
		}
		return err
	})
}

// command runs the command on one host, through the host's agent.
func (r *run) command(a *hosts.AgentHost, res *result, tell *console.HostProgress) error {
	orders, done := r.orders()
	defer done()
	own := r.request
	// The host's own variables come last, so they override the others.
	own.Env = slices.Concat(own.Env, raws(res.host.Resource.Env))
	stdout, stderr := r.outputs(res, tell)
	err := hosts.Exec(r.interrupts.bounded, a, own, orders, stdout, stderr)
	if transport.IsLost(err) {
		err = fmt.Errorf("%w; the host kills the command within %s of the last message from plx", err, r.cfg.Lease)
	}
	return err
}

// each calls work for all hosts that have not failed, and shows which hosts
// have not finished.
func (r *run) each(doing string, work func(*result, *console.HostProgress) error) {
	var going []*result
	for _, res := range r.results {
		if res.err == nil {
			going = append(going, res)
		}
	}
	tell := r.printer.NewHostProgress(doing, len(going))
	hosts.Each(context.Background(), going, func(_ int, res *result) error { // ignore the error, because each result has its own
		defer tell.End(res.host.Label())
		// The host's name is removed from the error, because it is printed
		// with the result.
		res.err = transport.Unnamed(res.host.Name(), work(res, tell))
		return nil
	})
}
