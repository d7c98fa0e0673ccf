package provision

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"time"

	"github.com/plx-run/plx/envsync"
	"github.com/plx-run/plx/envsync/tree"
	"github.com/plx-run/plx/internal/plural"
	"github.com/plx-run/plx/launcher/console"
	"github.com/plx-run/plx/launcher/hosts"
	"github.com/plx-run/plx/launcher/protocol"
	"github.com/plx-run/plx/launcher/scratch"
)

// options returns the options with which tree.Send sends files. In the
// progress bar, part is the title for all these files, and name is the name of
// the current file.
func (r *Recipe) options(part, name string) tree.SendOptions {
	return tree.SendOptions{
		Low: r.Spec.PortLow, High: r.Spec.PortHigh, Sent: r.bar.AddSent, Spool: scratch.Place,
		Progress: func(host, _ string, sent, total int64) { r.bar.MovedOf(part, host, name, sent, total) },
		Lost: func(what []string) {
			more := ""
			if n := len(what) - 1; n > 0 {
				more = fmt.Sprintf(" (and %s more)", plural.Count(n, "host"))
			}
			r.Printer.Printf("hosts could not pass files on to each other, so this machine has sent them: %s%s", what[0], more)
		},
	}
}

// sendPrograms sends each host the executable for the host's platform. The
// host stores it in its cache of files (blobs). A host that already has the
// executable receives nothing.
func (r *Recipe) sendPrograms(ctx context.Context, on []*Target) error {
	if r.Program == nil {
		return nil
	}
	lacking := map[envsync.Platform][]tree.Target{}
	for _, t := range on {
		p := t.Facts.Platform
		if program, sent := r.Program(p); sent && !t.Has(program) {
			lacking[p] = append(lacking[p], target(t, protocol.Put{Program: true}))
		}
	}
	var errs []error
	for p, to := range lacking {
		program, _ := r.Program(p)
		f, err := tree.Gather(ctx, []string{program.Path}, tree.Options{Cache: hashCache()})
		if err == nil && f.Entries[0].Sum.String() != program.Sum {
			err = &tree.ChangedError{Path: program.Name}
		}
		if err == nil {
			err = tree.Send(ctx, to, f, r.options(program.Name, program.Name))
		}
		errs = append(errs, err)
	}
	return errors.Join(errs...)
}

// sendFolder sends the content of folder f to hosts that do not have it. If
// inJob is true, the hosts make it the working directory of the job, and do
// not change an existing working directory. If cached files on a host are
// damaged, sendFolder sends these files again.
func (r *Recipe) sendFolder(ctx context.Context, on []*Target, f *tree.Folder, inJob bool, o tree.SendOptions) error {
	_, size := f.Files()
	id, limit := f.ID().String(), tree.AnswerLimit(size)
	has := make([]bool, len(on))
	_ = hosts.Each(ctx, on, func(i int, t *Target) error { // the result is ignored: if the request to host i fails, has[i] stays false and the folder is sent
		want := protocol.Has{Manifest: id}
		if inJob {
			want.Job, want.Folder = t.Job, t.Folder
		}
		_, err := hosts.Call[struct{}](ctx, t.AgentHost, limit, protocol.DoHas, want)
		r.reportDamage(t, err)
		has[i] = err == nil
		return nil
	})
	var lacking []*Target
	for i, t := range on {
		if !has[i] {
			lacking = append(lacking, t)
		}
	}
	damaged, err := sendOnce(ctx, lacking, f, inJob, o)
	if len(damaged) > 0 && ctx.Err() == nil {
		for t, err := range damaged {
			r.reportDamage(t, err)
		}
		_, err = sendOnce(ctx, slices.Collect(maps.Keys(damaged)), f, inJob, o)
	}
	return err
}

// sendOnce sends each host the files of folder f that the host does not have.
// If the only failures are damaged cached files on hosts, it returns these
// hosts with their errors in damaged.
func sendOnce(ctx context.Context, on []*Target, f *tree.Folder, inJob bool, o tree.SendOptions) (damaged map[*Target]error, err error) {
	var mu sync.Mutex // guards failed and others
	failed := map[*Target]error{}
	others := false
	var to []tree.Target
	for _, t := range on {
		want := protocol.Put{}
		if inJob {
			want.Job, want.Folder = t.Job, t.Folder
		}
		one := target(t, want)
		put := one.Put
		one.Put = func(ctx context.Context, stdin io.Reader, stdout io.Writer) error {
			err := put(ctx, stdin, stdout)
			mu.Lock()
			defer mu.Unlock()
			if protocol.CodeDamaged.Is(err) {
				failed[t] = err
			} else if err != nil {
				others = true
			}
			return err
		}
		to = append(to, one)
	}
	if err = tree.Send(ctx, to, f, o); err == nil || others {
		return nil, err
	}
	return failed, err
}

// reportDamage reports whether err means that a host's cached files were
// damaged. If so, it also prints a message.
func (r *Recipe) reportDamage(t *Target, err error) bool {
	damaged := protocol.CodeDamaged.Is(err)
	if damaged {
		r.Printer.Printf("host %s: files that it keeps were %s; plx sends them again", t.Name(), err)
	}
	return damaged
}

// target returns host t as a destination for tree.Send. tree.Send sends the
// request want to the host's agent.
func target(t *Target, want protocol.Put) tree.Target {
	addr, _ := t.DataAddr() // ignore the error: FindAddresses has already reported hosts without an address
	return tree.Target{Name: t.Name(), FileSystem: t.Facts.FileSystem, Addr: addr, Put: func(ctx context.Context, stdin io.Reader, stdout io.Writer) error {
		return hosts.Pipe(ctx, t.AgentHost, protocol.DoPut, want, stdin, stdout)
	}}
}

// discardTime is how long the removal of unused working directories may take.
const discardTime = 10 * time.Second

// discard removes the job's working directories on the hosts in from, because
// the job will not start there.
func discard(ctx context.Context, from []*Target) {
	tidy, cancel := context.WithTimeout(context.WithoutCancel(ctx), discardTime)
	defer cancel()
	// Ignore errors: if plx cannot reach a host, plx prune removes the folder
	// later.
	_ = hosts.Each(tidy, from, func(_ int, t *Target) error {
		_, err := hosts.Call[struct{}](tidy, t.AgentHost, discardTime, protocol.DoDiscard, protocol.HostJob{Job: t.Job, Folder: t.Folder})
		return err
	})
}

// FromJob returns the recipe of a running job. It copies the files that the
// recipe needs to dir, an empty local folder. It copies them from one of the
// job's hosts, whose agent is from.
func FromJob(ctx context.Context, from *hosts.AgentHost, spec protocol.Spec, dir string, printer *console.Printer) (r Recipe, err error) {
	r = Recipe{Printer: printer, PeerAddr: spec.DataAddr, Files: &Workdir{taken: true}, Spec: spec}
	if sum := spec.Command.Blob; sum != "" {
		program, err := TakeBlob(ctx, from, sum, dir)
		if err != nil {
			return r, err
		}
		r.Program = func(envsync.Platform) (envsync.Blob, bool) { return program, true }
	}
	// v.Request is nil if an earlier version of plx launched the job. r.Venv
	// then stays nil, so a new host gets no environment, and its agent refuses
	// to start tasks.
	if v := spec.Command.Venv; v != nil && v.Request != nil {
		if r.Venv, err = venvOf(*v, from, dir); err != nil {
			return r, err
		}
	}
	if spec.Workdir != "" {
		r.Files.named = "the job's files"
	}
	if manifest := cmp.Or(spec.Workdir, spec.Copied); manifest != "" {
		r.Files.Folder, err = takeFolder(ctx, from, manifest, filepath.Join(dir, "files"))
	}
	return r, err
}

// takeFolder copies a folder from a host into the new local folder dir.
// manifest is the checksum of the folder's list of files.
func takeFolder(ctx context.Context, from *hosts.AgentHost, manifest, dir string) (*tree.Folder, error) {
	if err := os.Mkdir(dir, 0o700); err != nil {
		return nil, err
	}
	id, err := tree.ParseSum(manifest)
	if err != nil {
		return nil, from.Named(err)
	}
	f, err := tree.Download(ctx, func(ctx context.Context, to io.Writer) error {
		return hosts.Pipe(ctx, from, protocol.DoGet, protocol.Get{Manifest: manifest}, nil, to)
	}, id, dir)
	if err != nil {
		return nil, from.Named(err)
	}
	return f, nil
}

// TakeBlob copies a file from a host's cache to the folder dir. sum is the
// file's checksum. If this process's own executable has the same checksum,
// TakeBlob returns the executable without copying.
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
