// Package submit implements plx launch --slurm, which submits a launch to
// Slurm as a batch job.
//
//	code, err := submit.Run(ctx, submit.Config{
//		Program: "./train", Words: []string{"--ps=none", "./train"},
//		Options: []string{"--nodes=2"}, Terminal: t,
//	}, signals)
//
// The package passes sbatch a script that runs plx launch with the same flags
// on the first node of the allocation. There, package launcher finds the nodes
// of the allocation. Package submit chooses the job's id, so that the user
// knows the id before the job begins. Package jobs waits for the job and
// attaches to it, as it does for plx logs and plx attach.
//
// # What this package does not do
//
// It neither builds nor sends anything: plx in the batch script does that. It
// does not write the tasks' environment variables into the script, because
// Slurm keeps scripts. It writes them into a file in the user's home
// directory.
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
	"github.com/plx-run/plx/launcher/entrypoint"
	"github.com/plx-run/plx/launcher/exit"
	"github.com/plx-run/plx/launcher/jobs"
	"github.com/plx-run/plx/launcher/slurm"
	"github.com/plx-run/plx/launcher/submission"
	"github.com/plx-run/plx/logs"
)

// Config describes one submission to Slurm.
type Config struct {
	Terminal          console.Terminal
	Name              string        // job name from the user; "" if the user gave none
	Program           string        // program that the tasks run
	Words             []string      // flags for plx launch in the batch script
	Args              []string      // program and its arguments
	Environ           []string      // tasks' environment variables, as NAME=VALUE
	Options           []string      // command-line options for sbatch
	Detach            bool          // print the job's id and return after the submission
	DryRun            bool          // print the batch script without submitting it
	Shown             logs.Options  // selects and formats the output lines that are printed
	Finish            bool          // after the job's end, also wait until plx in the batch script has finished its work, such as --fetch
	CheckpointTimeout time.Duration // time limit of the last checkpoint after SIGTERM; 0 takes no checkpoint
}

// Run submits a job to Slurm, prints its output until it ends unless
// cfg.Detach is set, and returns plx's exit status. The first signal on sig
// stops the job or removes it from the queue. After a second signal, Run
// returns and the job continues. SIGHUP makes Run return at once, because
// Slurm runs the job without this process.
func Run(ctx context.Context, cfg Config, sig <-chan os.Signal) (int, error) {
	for _, option := range cfg.Options {
		if err := slurm.CheckOption(option); err != nil {
			return exit.Code(err), err
		}
	}
	now := time.Now().UTC()
	s := &submission.Submission{Job: jobs.NewID(cfg.Name, entrypoint.Title(cfg.Program, cfg.Args[min(1, len(cfg.Args)):]), now), Name: cfg.Name, Program: filepath.Base(cfg.Program), Created: now}
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

// submit writes the batch script, submits it with sbatch, and records the
// submission.
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
		return errors.Join(err, s.Remove())
	}
	return s.Record(id, script.Output)
}

// script returns the batch script for sbatch. Except in a dry run, it also
// creates the submission's directory.
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

// follow prints the job's output until the job ends. A first signal stops the
// job; a second one ends follow while the job continues.
func (cfg Config) follow(ctx context.Context, s *submission.Submission, sig <-chan os.Signal, printer *console.Printer) (code int, err error) {
	ctx, leave := context.WithCancelCause(ctx)
	defer leave(nil)
	query := jobs.Query{Job: s.Job, Terminal: cfg.Terminal, Printer: printer}
	ended := make(chan struct{}) // closed after code and err are set to the job's result
	go func() {
		defer close(ended)
		code, err = jobs.Follow(ctx, s, query, cfg.Shown)
		if cfg.Finish && code == 0 && err == nil {
			err = s.Finished(ctx)
			code = exit.Code(err)
		}
	}()
	asked := 0             // plx's exit status because of the last signal; 0 before the first signal
	var stopped chan error // receives the result of stopping the job; nil if no stop is pending
	for following := ended; following != nil || stopped != nil; {
		select {
		case <-following:
			following = nil
		case err := <-stopped:
			if stopped = nil; err != nil {
				printer.Error(err)
			}
		case got := <-sig:
			again, name := asked != 0, "Ctrl-C"
			asked = 130
			if n, ok := got.(syscall.Signal); ok && n != syscall.SIGINT {
				asked, name = 128+int(n), "signal "+n.String()
			}
			if again || got == syscall.SIGHUP {
				leave(exit.WithCode(fmt.Errorf("job %s: left alone: plx attach %[1]s, plx stop %[1]s", s.Job), asked))
				sig, stopped = nil, nil
				continue
			}
			printer.Printf("%s: the job is stopped, a second signal leaves it alone", name)
			stop := jobs.StopConfig{Query: query, Grace: -1, Code: asked, Reason: name}
			if got == syscall.SIGTERM {
				stop.SaveTime = cfg.CheckpointTimeout
			}
			done := make(chan error, 1)
			go func() { done <- jobs.Stop(context.Background(), stop) }()
			stopped = done
		}
	}
	switch {
	case asked == 0:
		return code, err
	case err != nil && ctx.Err() == nil: // do nothing: the error of the stop was already printed
		return asked, nil
	}
	return asked, err
}
