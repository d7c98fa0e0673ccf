package provision

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/plx-run/plx/envsync"
	"github.com/plx-run/plx/launcher/console"
	"github.com/plx-run/plx/launcher/hosts"
	"github.com/plx-run/plx/launcher/protocol"
)

// Target is a host that is prepared for a job.
type Target struct {
	*hosts.AgentHost
	GPUs int   // number of workers on this host that have GPUs
	Err  error // error of the last stage on this host, without the host's name; nil if the stage succeeded

	DialTime time.Duration // duration of Connect, even if Connect failed
	Python   *Imported     // result of Imports; nil before Imports has run
	Note     string        // warning from Imports, for example that torch is built for CPUs only; "" if there is none
}

// Recipe describes how to prepare hosts for a job. Each stage is a method,
// which works on all hosts at the same time and sets Target.Err. The error
// that a stage returns joins the errors of all hosts.
type Recipe struct {
	Set     *hosts.Set // the set that contains all hosts
	Printer *console.Printer

	// Likely are the files that the hosts will probably need. Place asks each
	// host which of them it already has, by checksum.
	Likely []envsync.Blob
	// ConnectTime and PlaceTime limit Connect and Place on each host. If they
	// are 0, only the time limits of the single operations in them apply.
	ConnectTime, PlaceTime time.Duration

	// PeerAddr is the data address of a host that already runs the job; "" if no
	// host does.
	PeerAddr string
	// Program returns the executable to send to hosts of a platform. It
	// returns false if these hosts need none. A nil Program means that no host
	// needs one.
	Program func(envsync.Platform) (envsync.Blob, bool)
	Venv    Venv
	Files   *Workdir
	Spec    protocol.Spec // the part of the job's specification that is the same for all hosts
	Running bool          // true if the job already runs; its files are then sent as they were at its start

	bar *console.Transfer // progress bar for what Ready sends
}

// stage is one step of the preparation: a method of Recipe, such as Connect,
// bound to its Recipe.
type stage func(context.Context, []*Target) error

// Survey connects to the hosts and installs plx on those that do not have it.
// It then asks each host for its platform and its GPUs.
func (r Recipe) Survey(ctx context.Context, on []*Target) error {
	return inOrder(ctx, on, r.Connect, r.Place, r.FindGPUs)
}

// Ready sends each host what the tasks of a job need and the host does not
// have, and prints what was sent. plx must already be installed on the hosts.
// Ready is used when a job starts on a host, and when a host joins or returns
// to a running job. If it fails, it removes the working directories that it
// has created.
func (r Recipe) Ready(ctx context.Context, on []*Target) error {
	r.bar = r.Set.Sending()
	err := inOrder(ctx, on, r.FindAddresses, r.checkReach, r.sendAll)
	if err == nil {
		err = inOrder(ctx, on, r.setUp, r.checkImports)
	}
	if err != nil && r.Files.named != "" {
		discard(ctx, on)
	}
	return err
}

// sendAll sends the program, the virtual environment and the files of the job.
// A host receives only what it does not have.
func (r *Recipe) sendAll(ctx context.Context, on []*Target) error {
	r.bar.Resume()
	err := inOrder(ctx, on, r.sendPrograms, r.installVenv, r.sendFiles)
	r.bar.Finish(err)
	return err
}

// inOrder runs the stages one after another and stops at the first one that
// fails.
func inOrder(ctx context.Context, on []*Target, stages ...stage) error {
	for _, s := range stages {
		err := s(ctx, on)
		if err = cmp.Or(context.Cause(ctx), err); err != nil {
			return err
		}
	}
	return nil
}

// each calls work for all hosts at the same time and stores the returned error
// in the host's Target. tally shows for which hosts each still waits; it may
// be nil. The error of each lists hosts with the same error together.
func each(ctx context.Context, on []*Target, tally *console.HostProgress, work func(int, *Target) error) error {
	_ = hosts.Each(ctx, on, func(i int, t *Target) error { // ignore the result: each target has its error
		tally.Begin(t.Name())
		defer tally.End(t.Name())
		t.Err = work(i, t)
		return nil
	})
	names := map[string][]string{}
	var errs []error
	for _, t := range on {
		if t.Err == nil {
			continue
		}
		if names[t.Err.Error()] == nil {
			errs = append(errs, t.Err)
		}
		names[t.Err.Error()] = append(names[t.Err.Error()], t.Name())
	}
	for i, err := range errs {
		errs[i] = fmt.Errorf("%s: %w", hosts.Listed(names[err.Error()]), err)
	}
	return errors.Join(errs...)
}

// Connect connects to the hosts and logs in by SSH. r.Set shows the progress.
func (r *Recipe) Connect(ctx context.Context, on []*Target) error {
	return each(ctx, on, nil, func(_ int, t *Target) error {
		ctx, cancel := bounded(ctx, r.ConnectTime, "no connection within %v")
		defer cancel()
		began := time.Now()
		err := t.Dial(ctx)
		t.DialTime = time.Since(began)
		return err
	})
}

// Place installs plx on the hosts that do not have it, and asks each host for
// its platform. It does not print that plx was sent: Ready or Set.Placed
// prints that later.
func (r *Recipe) Place(ctx context.Context, on []*Target) error {
	err := each(ctx, on, r.Printer.NewHostProgress("probing", len(on)), func(_ int, t *Target) error {
		ctx, cancel := bounded(ctx, r.PlaceTime, "it was not sent within %v")
		defer cancel()
		err := t.Survey(ctx, r.Likely...)
		if err == nil && t.Binary == "" {
			t.AgentHost = t.Agent()
		}
		return err
	})
	r.Set.Pause()
	return err
}

func bounded(ctx context.Context, limit time.Duration, late string) (context.Context, context.CancelFunc) {
	if limit == 0 {
		return context.WithCancel(ctx)
	}
	return context.WithTimeoutCause(ctx, limit, fmt.Errorf(late, limit))
}

// FindGPUs makes the agent on each host list the host's GPUs.
func (r *Recipe) FindGPUs(ctx context.Context, on []*Target) error {
	defer r.Set.PrintSlowToolHints()
	tally := r.Printer.NewHostProgress("probing", len(on))
	return each(ctx, on, tally, func(_ int, t *Target) error { return t.AgentHost.FindGPUs(ctx, tally) })
}
