// Package exec runs one command on all hosts at once, and prints what they answer: equal
// answers once after the end, or each line at once.
//
//	code, err := exec.Run(ctx, exec.Config{
//		Reach:    hosts.Reach{Hosts: lines}, // from package hostfile
//		Program:  "uname", Args: []string{"-r"},
//		Terminal: console.Terminal{Stdout: os.Stdout, Stderr: os.Stderr},
//	}, signals)
//
// The command runs below the agent of each host, which ends it, with all that
// it has started, when this process ends, when it asks for that, or when the connection
// is silent for the lease.
//
// # What it refuses to do
//
// It starts no job: there are no ranks, no log is kept, and nothing of the command
// outlives it. It sends no program: the command is one of the hosts.
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

// Config is one command.
type Config struct {
	hosts.Reach
	Terminal console.Terminal
	Stdin    *os.File // standard input, which the command does not read: a note says so if something waits there; nil: nothing does

	Program string   // a command on the hosts' PATH, or a path on the hosts
	Args    []string // passed as they are: no shell reads them

	Env      []string // NAME=VALUE, or NAME for the value of this machine
	EnvFiles []string
	Chdir    string // folder on the hosts to run in; empty: the home
	Setup    string // shell line to run before the program; empty: none
	Path     string // folders to put before the hosts' PATH, separated by colons; empty: none

	MaxTime time.Duration // bounds the command on each host; 0: no limit
	Lease   time.Duration // how long a host runs the command without hearing this process
	Grace   time.Duration // between telling the command to end and killing it; 0: it is killed at once
	JSON    bool          // print JSON
	Stream  bool          // print each line at once, after the name of its host
}

// leastLease is the shortest lease. A busy host would miss a shorter one.
const leastLease = 5 * time.Second

// request checks the configuration, and returns what agents are told.
func (c Config) request() (protocol.ExecRequest, error) {
	for _, check := range []struct {
		wrong bool
		err   error
	}{
		{c.Program == "", exit.Mistake(errors.New("no command was named"), "plx exec --hosts resources.txt -- uname -r")},
		{len(c.Hosts) == 0, exit.Mistake(errors.New("no hosts were named"), "--hosts FILE, or --host LINE")},
		{c.Lease < leastLease, exit.Mistake(fmt.Errorf("--lease %s is too short, at least %s is needed", c.Lease, leastLease), "--lease %s", leastLease)},
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

// Run runs the command on all hosts, up to hosts.FanOut at once, and prints what they
// answer. It returns the largest exit status of all hosts. A host that could not be
// reached, or was lost, counts with exit.CodePlx. sig delivers the user's signals: the
// first ends the command everywhere with its grace, the second kills it.
func Run(ctx context.Context, cfg Config, sig <-chan os.Signal) (code int, err error) {
	request, err := cfg.request()
	if err != nil {
		return exit.Code(err), err
	}
	r := &run{cfg: cfg, request: request, printer: console.NewPrinter(cfg.Terminal)}
	r.printer.Lines(envsync.Doubts(cfg.Env, cfg.EnvFiles))
	ctx, r.interrupts = watch(ctx, sig, cfg.Grace, r.printer)
	defer r.interrupts.close()
	if r.set, err = hosts.Open(ctx, cfg.Reach, r.printer); err != nil {
		return exit.Code(err), errors.Join(err, r.set.Close())
	}
	defer r.set.Close() // every answer has arrived
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

// stdinNote is printed if something waits on standard input.
const stdinNote = "note: standard input does not reach the command, its own is empty: bash -c 'LINE' runs a line of shell"

// run is one call of Run.
type run struct {
	cfg        Config
	request    protocol.ExecRequest
	printer    *console.Printer
	interrupts *interrupts
	set        *hosts.Set
	results    []*result     // in the order of the resource file
	live       *logs.Printer // prints lines at once; nil: results are printed at the end
}

// prepare connects to the hosts and places the agent. A host that fails has the error in its
// result, and stops no other.
func (r *run) prepare(ctx context.Context) error {
	r.each("probing", func(res *result, tell *console.Tally) error {
		if err := res.host.Dial(ctx); err != nil { // the dial shows itself
			return err
		}
		tell.Begin(res.host.Label())
		return res.host.Meet(ctx)
	})
	r.set.Placed(nil)
	return context.Cause(ctx)
}

// everywhere runs the command.
func (r *run) everywhere(ctx context.Context) {
	r.each("running", func(res *result, tell *console.Tally) error {
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

// command runs the command on one host.
func (r *run) command(a *hosts.AgentHost, res *result, tell *console.Tally) error {
	orders, done := r.orders()
	defer done()
	own := r.request
	own.Env = slices.Concat(own.Env, raws(res.host.Resource.Env)) // the later value counts
	stdout, stderr := r.outputs(res, tell)
	err := hosts.Exec(r.interrupts.bounded, a, own, orders, stdout, stderr)
	if transport.IsLost(err) {
		err = fmt.Errorf("%w; the host ends the command %s after it last heard plx, at the latest", err, r.cfg.Lease)
	}
	return err
}

// each works on all hosts that have not failed, and reports whom it waits for.
func (r *run) each(doing string, work func(*result, *console.Tally) error) {
	var going []*result
	for _, res := range r.results {
		if res.err == nil {
			going = append(going, res)
		}
	}
	tell := r.printer.NewTally(doing, len(going))
	hosts.Each(context.Background(), going, func(_ int, res *result) error { // the results have the errors
		defer tell.End(res.host.Label())
		res.err = transport.Unnamed(res.host.Name(), work(res, tell)) // what prints it names the host
		return nil
	})
}
