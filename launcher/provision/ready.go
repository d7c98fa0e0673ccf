package provision

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"github.com/plx-run/plx/envsync"
	"github.com/plx-run/plx/launcher/console"
	"github.com/plx-run/plx/launcher/hosts"
	"github.com/plx-run/plx/launcher/protocol"
)

// Recipe is what the tasks of a job find on a host besides plx.
type Recipe struct {
	// Program returns what is sent to hosts of a platform; false: they have it. Nil: all have.
	Program func(envsync.Platform) (envsync.Blob, bool)
	Venv    Venv
	Files   *Workdir
	Spec    protocol.Spec // what is the same on all hosts
	Printer *console.Printer
	// PortLow and PortHigh are the first and last port on which hosts pass files on; 0 and 0: any.
	PortLow, PortHigh int
}

// Ready gives hosts that have plx all that the tasks of a job find there, whether the job starts on
// them, comes back to them or continues on them. A host gets what it lacks. gpus has the number of
// workers with GPUs of each host. After an error no host has a new working directory of the job.
func Ready(ctx context.Context, on []*hosts.AgentHost, gpus []int, r Recipe) error {
	how := Sending{Printer: r.Printer, PortLow: r.PortLow, PortHigh: r.PortHigh}
	err := r.sendPrograms(ctx, on, how)
	if err == nil {
		err = r.Venv.installAll(ctx, on, how)
	}
	if err == nil {
		err = r.Files.sendAll(ctx, on, how)
	}
	if err == nil {
		r.Spec.Workdir = r.Files.ID()
		err = run(ctx, on, r.Spec, gpus, r.Printer)
	}
	return causeOr(ctx, err)
}

// Again is Ready for a host that has lost its agent, and maybe its files. It shows no progress.
func Again(ctx context.Context, a *hosts.AgentHost, gpus int, r Recipe) error {
	on, how := []*hosts.AgentHost{a}, Sending{}
	err := r.programs(ctx, on, how)
	if err == nil {
		err = r.Venv.install(ctx, on, how)
	}
	if err == nil && r.Files.Folder != nil {
		err = r.Files.send(ctx, on, how)
	}
	if err == nil {
		r.Spec.Workdir = r.Files.ID()
		err = run(ctx, on, r.Spec, []int{gpus}, r.Printer)
	}
	return err
}

// sendPrograms shows the progress of programs.
func (r Recipe) sendPrograms(ctx context.Context, on []*hosts.AgentHost, how Sending) error {
	how.Bar = r.Printer.NewTransfer("sending")
	err := r.programs(ctx, on, how)
	how.Bar.Sent(err)
	return err
}

// programs brings hosts the program of their platform.
func (r Recipe) programs(ctx context.Context, on []*hosts.AgentHost, how Sending) error {
	if r.Program == nil {
		return nil
	}
	by := map[envsync.Platform][]*hosts.AgentHost{}
	var platforms []envsync.Platform
	for _, a := range on {
		if p := a.Facts.Platform; by[p] == nil {
			platforms = append(platforms, p)
		}
		by[a.Facts.Platform] = append(by[a.Facts.Platform], a)
	}
	var errs []error
	for _, p := range platforms {
		if program, sent := r.Program(p); sent {
			errs = append(errs, sendProgram(ctx, by[p], program, how))
		}
	}
	return errors.Join(errs...)
}

// FromJob returns the recipe of a job that runs, whose files a host of it has. They are copied to
// dir, an empty folder of this machine, as far as they are needed.
func FromJob(ctx context.Context, from *hosts.AgentHost, spec protocol.Spec, dir string, printer *console.Printer) (r Recipe, err error) {
	r = Recipe{Files: &Workdir{taken: true}, Spec: spec, Printer: printer, PortLow: spec.PortLow, PortHigh: spec.PortHigh}
	if sum := spec.Command.Blob; sum != "" {
		program, err := TakeBlob(ctx, from, sum, dir)
		if err != nil {
			return r, err
		}
		r.Program = func(envsync.Platform) (envsync.Blob, bool) { return program, true }
	}
	if v := spec.Command.Venv; v != nil && v.Request != nil { // an agent of an earlier version refuses to start without
		r.Venv = Venv{named: "the job's virtual environment", from: from, dir: dir}
		if err := json.Unmarshal(v.Request, &r.Venv.request); err != nil {
			return r, from.Named(fmt.Errorf("the job's virtual environment: %w", err))
		}
		if r.Venv.request.Folder() != v.Folder || r.Venv.request.BaseFolder() != v.Base {
			return r, from.Named(errors.New("the job's virtual environment is of another version of plx: scale with the plx that launched the job"))
		}
	}
	if spec.Workdir != "" {
		r.Files.named = "the job's files"
	}
	if manifest := cmp.Or(spec.Workdir, spec.Copied); manifest != "" {
		r.Files.Folder, err = takeInto(ctx, from, manifest, filepath.Join(dir, "files"))
	}
	return r, err
}

// TakeBlob copies a blob from a host to the folder dir, unless it is this process's own binary.
func TakeBlob(ctx context.Context, from *hosts.AgentHost, sum, dir string) (envsync.Blob, error) {
	if self, err := os.Executable(); err == nil {
		if own, err := envsync.FileBlob(self); err == nil && own.Sum == sum {
			return own, nil
		}
	}
	if !hosts.IsSafe(sum) {
		return envsync.Blob{}, from.Named(fmt.Errorf("%q is no blob's name", sum))
	}
	file, err := os.OpenFile(filepath.Join(dir, sum), os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o700)
	if err != nil {
		return envsync.Blob{}, err
	}
	err = hosts.Pipe(ctx, from, protocol.DoGet, protocol.Get{Blob: sum}, nil, file)
	if err := errors.Join(err, file.Close()); err != nil {
		return envsync.Blob{}, from.Named(fmt.Errorf("copy %.12s, a file of the job: %w", sum, err))
	}
	b, err := envsync.FileBlob(file.Name())
	if err == nil && b.Sum != sum {
		err = from.Named(fmt.Errorf("file %.12s of the job is damaged there", sum))
	}
	return b, err
}
