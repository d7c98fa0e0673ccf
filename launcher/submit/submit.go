// Package submit hands a launch to Slurm: plx launch --slurm.
//
//	code, err := submit.Run(ctx, submit.Config{
//		Program: "./train", Words: []string{"--ps=none", "./train"},
//		Options: []string{"--nodes=2"}, Terminal: t,
//	}, signals)
//
// sbatch gets a script that runs the same plx with the same flags on the first node of the
// allocation, where package launcher finds the nodes by itself. The id of the job is chosen
// here, so that the user has one before the job begins. Package jobs waits for the job and
// attaches to it, and so do plx logs and plx attach.
//
// # What it refuses to do
//
// It sends and builds nothing: the script's plx does. Variables of the tasks are not in the
// script, which Slurm keeps, but in a file of the user's home.
package submit

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"syscall"
	"time"

	"github.com/plx-run/plx/launcher/console"
	"github.com/plx-run/plx/launcher/exit"
	"github.com/plx-run/plx/launcher/jobs"
	"github.com/plx-run/plx/launcher/slurm"
	"github.com/plx-run/plx/launcher/submission"
	"github.com/plx-run/plx/logs"
)

// Config is one submission.
type Config struct {
	Terminal console.Terminal
	Name     string        // the user's name for the job; empty: none
	Program  string        // of the job
	Words    []string      // flags of plx launch in the script
	Args     []string      // the program and its arguments
	Environ  []string      // variables of the tasks, as NAME=VALUE
	Options  []string      // of sbatch
	Detach   bool          // return after the submission, and print the job's id
	DryRun   bool          // print the script, and submit nothing
	Shown    logs.Options  // which lines are printed
	Finish   bool          // wait for what the script's plx does after the verdict: --fetch, --log-dir
	SaveTime time.Duration // bounds the checkpoint before SIGTERM ends the job; 0: none is made
}

// Run submits a job, follows it unless it is detached, and returns plx's exit status. The
// first signal of sig stops the job or takes it out of the queue, the second leaves it alone.
// SIGHUP leaves it alone at once: Slurm runs it without this process.
func Run(ctx context.Context, cfg Config, sig <-chan os.Signal) (int, error) {
	for _, option := range cfg.Options {
		if err := slurm.CheckOption(option); err != nil {
			return exit.Code(err), err
		}
	}
	now := time.Now().UTC()
	s := &submission.Submission{Job: jobs.NewID(cfg.Name, cfg.Program, now), Name: cfg.Name, Program: filepath.Base(cfg.Program), Created: now}
	if err := cfg.submit(ctx, s); err != nil || cfg.DryRun {
		return exit.Code(err), err
	}
	printer := console.NewPrinter(cfg.Terminal)
	printer.Printf("job %s: submitted, as job %s of Slurm", s.Job, s.Slurm)
	if cfg.Detach {
		printer.Printf("plx attach waits for it, plx jobs shows its state, plx stop ends it")
		err := cfg.Terminal.Print("%s", s.Job)
		return exit.Code(err), err
	}
	return cfg.follow(ctx, s, sig, printer)
}

// submit writes the script and has sbatch submit it.
func (cfg Config) submit(ctx context.Context, s *submission.Submission) error {
	script, err := cfg.script(s)
	if err != nil {
		return err
	}
	if cfg.DryRun {
		return cfg.Terminal.Text(script.Text())
	}
	id, err := script.Submit(ctx)
	if err != nil {
		return errors.Join(err, s.Unmake())
	}
	return s.Record(id, script.Output)
}

// script returns what sbatch gets. Except for a dry run it makes the submission's folder.
func (cfg Config) script(s *submission.Submission) (script slurm.Submission, err error) {
	dir, err := s.Folder()
	if err != nil {
		return script, err
	}
	if script.Dir, err = os.Getwd(); err != nil {
		return script, err
	}
	plx, err := os.Executable()
	if err != nil {
		return script, err
	}
	words := slices.Clone(cfg.Words)
	if len(cfg.Environ) > 0 {
		words = append(words, "--env-file="+filepath.Join(dir, submission.EnvironmentFile))
	}
	script.Name, script.Job, script.Options = s.Name, s.Job, cfg.Options
	if script.Name == "" {
		script.Name = s.Program
	}
	script.Output = filepath.Join(dir, "slurm-%j.out")
	script.Command = slices.Concat([]string{plx, "launch"}, words, cfg.Args)
	if cfg.DryRun {
		return script, nil
	}
	return script, s.Make(cfg.Environ)
}

// follow follows the job to its end.
func (cfg Config) follow(ctx context.Context, s *submission.Submission, sig <-chan os.Signal, printer *console.Printer) (int, error) {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	i := &interrupts{cfg: cfg, submission: s, printer: printer, leave: cancel, done: make(chan struct{}), ended: make(chan struct{})}
	go i.heed(sig)
	code, err := jobs.Follow(ctx, s, i.query(), cfg.Shown)
	if cfg.Finish && code == 0 && err == nil {
		err = s.Finished(ctx)
		code = exit.Code(err)
	}
	close(i.done)
	<-i.ended
	switch {
	case i.code == 0:
	case err != nil && ctx.Err() == nil: // the stop was reported
		return i.code, nil
	default:
		code = i.code
	}
	return code, err
}

// interrupts is what signals do to a job that is followed.
type interrupts struct {
	cfg        Config
	submission *submission.Submission
	printer    *console.Printer
	leave      context.CancelCauseFunc // ends the following
	done       chan struct{}           // closed when nothing is followed any more
	ended      chan struct{}           // closed when heed has returned
	code       int                     // exit status after a signal; 0: there was none
}

func (i *interrupts) heed(sig <-chan os.Signal) {
	defer close(i.ended)
	var stopped chan error // nil: nothing is being stopped
	done := i.done
	for done != nil || stopped != nil {
		select {
		case <-done:
			done = nil
		case err := <-stopped:
			if stopped = nil; err != nil {
				i.printer.Error(err)
			}
		case got := <-sig:
			again, name := i.code != 0, "Ctrl-C"
			i.code = 130
			if n, ok := got.(syscall.Signal); ok && n != syscall.SIGINT {
				i.code, name = 128+int(n), "signal "+n.String()
			}
			if again || got == syscall.SIGHUP {
				i.leave(exit.WithCode(fmt.Errorf("job %s: left alone: plx attach %[1]s, plx stop %[1]s", i.submission.Job), i.code))
				return
			}
			i.printer.Printf("%s: the job is stopped, a second signal leaves it alone", name)
			stopped = make(chan error, 1)
			code := i.code
			go func() { stopped <- i.stop(got, name, code) }()
		}
	}
}

// query means the job, and prints beside others.
func (i *interrupts) query() jobs.Query {
	return jobs.Query{Job: i.submission.Job, Terminal: i.cfg.Terminal, Printer: i.printer}
}

// stop is plx stop.
func (i *interrupts) stop(got os.Signal, name string, code int) error {
	cfg := jobs.StopConfig{Query: i.query(), Grace: -1, Code: code, Reason: name}
	if got == syscall.SIGTERM {
		cfg.SaveTime = i.cfg.SaveTime
	}
	return jobs.Stop(context.Background(), cfg)
}
