// Package fetch copies the checkpoints, the outputs and the logs of a job from
// its hosts into one local folder.
//
//	err := fetch.Job(ctx, fetch.Request{Hosts: agents, Name: "mnist", Dir: "saved", Printer: p})
//
// Each host has some files of a checkpoint, and several hosts can have the
// same file. The functions in gather.go combine the hosts' lists. Outputs are
// the files that match the patterns of --output, and TensorBoard summaries and
// timelines. The functions in outputs.go fetch outputs and logs.
//
// Each file is verified against the SHA-256 in the host's list. An existing
// file is never replaced. The package rejects a listed name that leads out of
// the local folder, and a hidden name directly below that folder.
package fetch

import (
	"context"
	"errors"
	"os"
	"sync"

	"github.com/plx-run/plx/launcher/console"
	"github.com/plx-run/plx/launcher/hosts"
	"github.com/plx-run/plx/launcher/protocol"
)

// Request describes which files of a job to fetch, and the local folder to
// write them to.
type Request struct {
	Hosts   []*hosts.AgentHost // hosts to fetch from, by their agents
	Name    string             // name of the job's checkpoints, a folder below ~/.plx/ckpt on the hosts
	Outputs []protocol.Output  // values of --output with which the job was launched; nil for none
	Wanted  protocol.Wanted    // further files to fetch; if Wanted has patterns, no checkpoints and logs are fetched
	Dir     string             // local folder to write the files to
	Printer *console.Printer
}

// fetcher is the state of one call of Job.
type fetcher struct {
	from Request
	bar  *console.Transfer

	mu   sync.Mutex
	left map[string]int64 // sizes of the files still to be fetched, by path below Request.Dir
}

// errNone is the error if the hosts have nothing to fetch.
type errNone struct {
	error
	unreached bool // true if some hosts could not be reached; they may have files
}

// IsNothing reports whether err, an error of Job, only means that the job has
// made none of the requested files.
func IsNothing(err error) bool {
	none, ok := err.(errNone)
	return ok && !none.unreached
}

// Job fetches the checkpoints, outputs and logs of a job. It returns an error
// if there is nothing to fetch (see IsNothing) or if a file cannot be fetched.
// Logs are an exception: unless Request.Wanted.Made is set, Job only prints a
// message about a log that cannot be fetched.
func Job(ctx context.Context, r Request) error {
	f := &fetcher{from: r}
	var err error = errNone{error: errors.New("no file of the job matches")}
	if r.Wanted.Patterns == nil {
		err = f.checkpoints(ctx)
	}
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	if errors.As(err, new(errFull)) {
		return err
	}
	n, failed := f.outputs(ctx, err == nil)
	switch none := new(errNone); {
	case !errors.As(err, none):
		return errors.Join(err, failed)
	case n > 0 || failed != nil && r.Wanted.Patterns != nil:
		return failed
	case failed != nil:
		return errors.Join(err, failed)
	}
	return err
}

// DirHint is the hint for users that goes with an error of [EnsureWritable].
const DirHint = "name a folder of this machine that you may write to, such as fetched; plx creates it if needed"

// EnsureWritable creates the folder dir if necessary. It returns an error if no file
// can be created in it.
func EnsureWritable(dir string) error {
	if err := os.MkdirAll(dir, 0o777); err != nil {
		return err
	}
	trial, err := os.CreateTemp(dir, ".plx-*")
	if err != nil {
		return err
	}
	return errors.Join(trial.Close(), os.Remove(trial.Name()))
}
