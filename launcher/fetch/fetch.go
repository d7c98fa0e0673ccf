// Package fetch brings the checkpoints, the outputs and the logs of a job from its hosts into one
// folder of this machine.
//
//	err := fetch.Job(ctx, fetch.Request{Hosts: agents, Name: "mnist", Dir: "saved", Printer: p})
//
// Hosts keep parts of a checkpoint, and some parts twice: gather.go puts together what
// they list. Outputs are the files that --output names, and summaries and timelines; they and
// the logs are in outputs.go. Each file is verified against the sum that the host lists, and no
// file is replaced. No name that a host lists leads out of the folder, or to a name at its top
// that begins with a dot.
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

// Request tells what to fetch, and where to.
type Request struct {
	Hosts   []*hosts.AgentHost // to fetch from
	Name    string             // of the checkpoints: a folder under ~/.plx/ckpt on the hosts
	Outputs []protocol.Output  // outputs that the job was launched with; nil: it has none
	Wanted  protocol.Wanted    // which files to fetch besides Outputs; with Patterns no checkpoints and no logs
	Dir     string             // folder of this machine to write to
	Printer *console.Printer
}

// fetcher is one call of Job.
type fetcher struct {
	from Request
	bar  *console.Transfer

	mu   sync.Mutex
	left map[string]int64 // sizes of the files that are to be fetched, and have not come yet, by path below Request.Dir
}

// errNone says that there is nothing to fetch.
type errNone struct {
	error
	unreached bool // on the hosts that were reached
}

// Nothing reports whether an error of Job says only that the job has made nothing that was
// to be fetched.
func Nothing(err error) bool {
	none, ok := err.(errNone)
	return ok && !none.unreached
}

// Job fetches the checkpoints and the files of a job. It is an error if there are neither,
// or if a file cannot be fetched; see also Nothing. The logs come too. They count as files of the
// job only if all that it has made is wanted: otherwise an error of theirs is printed.
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

// DirHint is the hint for an error of [Writable].
const DirHint = "name a folder of this machine that you may write into, such as fetched: plx makes it"

// Writable makes a folder, and refuses it if it takes no files.
func Writable(dir string) error {
	if err := os.MkdirAll(dir, 0o777); err != nil {
		return err
	}
	trial, err := os.CreateTemp(dir, ".plx-*")
	if err != nil {
		return err
	}
	return errors.Join(trial.Close(), os.Remove(trial.Name()))
}
