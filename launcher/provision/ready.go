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

// Target is a host that becomes ready for a job.
type Target struct {
	*hosts.AgentHost
	GPUs int   // workers that have GPUs there
	Err  error // why the last stage has failed there, without the host's name; nil: it has not

	Dialled time.Duration // how long Connect has taken, also if it has failed
	Python  *Imported     // what Imports has found; nil: nothing yet
	Note    string        // of Imports: what the user may not expect there
}

// Recipe is how hosts become ready for a job. Each stage is a method: it works on all hosts at once,
// and writes their Err. Its error has those of all hosts.
type Recipe struct {
	Set     *hosts.Set // that the hosts are of
	Printer *console.Printer

	// Likely are blobs that the hosts will probably need. Place asks which of them they have.
	Likely []envsync.Blob
	// ConnectTime and PlaceTime bound Connect and Place on each host; 0: nothing but their own
	// bounds does.
	ConnectTime, PlaceTime time.Duration

	// Like is the data address of a host that the job has already; "": it has none.
	Like string
	// Program returns what is sent to hosts of a platform; false: they have it. Nil: all have.
	Program func(envsync.Platform) (envsync.Blob, bool)
	Venv    Venv
	Files   *Workdir
	Spec    protocol.Spec // what is the same on all hosts
	Again   bool          // the job runs already: its files are what they were when it began

	bar *console.Transfer // shows what Ready sends
}

// stage is a method of a Recipe.
type stage func(context.Context, []*Target) error

// Survey connects to hosts, places plx on those that have none, and asks it what the hosts are and
// which GPUs they have.
func (r Recipe) Survey(ctx context.Context, on []*Target) error {
	return inOrder(ctx, on, r.Connect, r.Place, r.FindGPUs)
}

// Ready gives hosts that have plx all that the tasks of a job find there, whether the job starts on
// them, comes back to them or continues on them. A host gets what it lacks. It tells what was sent,
// plx too if Place has sent it. After an error no host has a new working directory of the job.
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

// sendAll sends what hosts lack.
func (r *Recipe) sendAll(ctx context.Context, on []*Target) error {
	r.bar.Resume()
	err := inOrder(ctx, on, r.sendPrograms, r.installVenv, r.sendFiles)
	r.bar.Sent(err)
	return err
}

// inOrder ends at the first stage with an error.
func inOrder(ctx context.Context, on []*Target, stages ...stage) error {
	for _, s := range stages {
		err := s(ctx, on)
		if err = cmp.Or(context.Cause(ctx), err); err != nil {
			return err
		}
	}
	return nil
}

// each works on all hosts at once. The tally, which may be nil, shows whom it waits for. Equal errors
// are one, with the names of their hosts.
func each(ctx context.Context, on []*Target, tally *console.Tally, work func(int, *Target) error) error {
	_ = hosts.Each(ctx, on, func(i int, t *Target) error { // the targets have the errors
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

// Connect connects to hosts, and logs in there. The set shows whom it waits for.
func (r *Recipe) Connect(ctx context.Context, on []*Target) error {
	return each(ctx, on, nil, func(_ int, t *Target) error {
		ctx, cancel := bounded(ctx, r.ConnectTime, "no connection within %v")
		defer cancel()
		began := time.Now()
		err := t.Dial(ctx)
		t.Dialled = time.Since(began)
		return err
	})
}

// Place brings plx to the hosts that have none, and has it tell what the hosts are. Ready tells that
// plx was sent, or else Set.Placed.
func (r *Recipe) Place(ctx context.Context, on []*Target) error {
	err := each(ctx, on, r.Printer.NewTally("probing", len(on)), func(_ int, t *Target) error {
		ctx, cancel := bounded(ctx, r.PlaceTime, "it was not sent within %v")
		defer cancel()
		err := t.Meet(ctx, r.Likely...)
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

// FindGPUs has plx list the GPUs of hosts.
func (r *Recipe) FindGPUs(ctx context.Context, on []*Target) error {
	defer r.Set.HintAtSlowTools()
	tally := r.Printer.NewTally("probing", len(on))
	return each(ctx, on, tally, func(_ int, t *Target) error { return t.AgentHost.FindGPUs(ctx, tally) })
}
