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
	"github.com/plx-run/plx/launcher/entrypoint"
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

// follow follows the job to its end, and does what signals ask.
func (cfg Config) follow(ctx context.Context, s *submission.Submission, sig <-chan os.Signal, printer *console.Printer) (code int, err error) {
	ctx, leave := context.WithCancelCause(ctx)
	defer leave(nil)
	query := jobs.Query{Job: s.Job, Terminal: cfg.Terminal, Printer: printer}
	ended := make(chan struct{}) // closed once code and err are those of the job
	go func() {
		defer close(ended)
		code, err = jobs.Follow(ctx, s, query, cfg.Shown)
		if cfg.Finish && code == 0 && err == nil {
			err = s.Finished(ctx)
			code = exit.Code(err)
		}
	}()
	asked := 0             // exit status after a signal; 0: there was none
	var stopped chan error // nil: nothing is being stopped
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
				stop.SaveTime = cfg.SaveTime
			}
			done := make(chan error, 1)
			go func() { done <- jobs.Stop(context.Background(), stop) }()
			stopped = done
		}
	}
	switch {
	case asked == 0:
		return code, err
	case err != nil && ctx.Err() == nil: // the stop was reported
		return asked, nil
	}
	return asked, err
}
