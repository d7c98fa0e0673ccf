//go:build linux

package agent

import (
	"context"
	"errors"
	"fmt"
	"io"

	"github.com/plx-run/plx/envsync"
	"github.com/plx-run/plx/envsync/tree"
	"github.com/plx-run/plx/launcher/agent/jobfolder"
	"github.com/plx-run/plx/launcher/agent/sockets"
	"github.com/plx-run/plx/launcher/protocol"
)

// put receives the files of a folder into the host's cache; the sender is
// tree.Send. If of.Job is set, put also builds that job's working directory
// from the files.
func put(ctx context.Context, of protocol.Put, in io.Reader, out io.Writer) error {
	if of.Program {
		return putProgram(ctx, in, out)
	}
	files, err := jobfolder.Files()
	if err != nil {
		return err
	}
	build, err := workdir(ctx, of.Job, of.Folder)
	if err != nil {
		return err
	}
	return damagedContent(files.Serve(ctx, in, out, sockets.FanoutNetwork{}, build))
}

// workdir returns a function that builds a job's working directory from a
// manifest (list of files) in the cache. build is nil if job is empty.
func workdir(ctx context.Context, job, folder string) (build func(tree.Sum) error, err error) {
	if job == "" {
		return nil, nil
	}
	f, err := jobfolder.Of(job, folder)
	return func(id tree.Sum) error {
		if err := f.Build(ctx, id); err != nil {
			return errors.Join(fmt.Errorf("make the working directory: %w", err), f.RemoveUnstarted())
		}
		return nil
	}, err
}

// damagedContent gives err a code of its own if err means a damaged file in
// the cache. The launching machine recognises the code and sends that file
// again.
func damagedContent(err error) error {
	if damaged := (*tree.DamagedError)(nil); errors.As(err, &damaged) {
		return &protocol.Failure{Code: protocol.CodeDamaged, Text: damaged.Error()}
	}
	return err
}

// has succeeds if the cache holds all files of a folder, so that the launcher
// need not send them. If of.Job is set, has also builds that job's working
// directory.
func has(ctx context.Context, of protocol.Has) error {
	id, err := tree.ParseSum(of.Manifest)
	if err != nil {
		return err
	}
	build, err := workdir(ctx, of.Job, of.Folder)
	if err != nil {
		return err
	}
	if build != nil {
		return damagedContent(build(id)) // build fails if a file is missing
	}
	files, err := jobfolder.Files()
	if err == nil && !files.Contains(id) {
		err = errors.New("files of the folder are missing on this host")
	}
	return err
}

func putProgram(ctx context.Context, in io.Reader, out io.Writer) error {
	programs, err := jobfolder.Programs()
	if err != nil {
		return err
	}
	return programs.Serve(ctx, in, out, sockets.FanoutNetwork{}, func(id tree.Sum) error {
		m, err := programs.Manifest(id)
		if err != nil {
			return err
		}
		if len(m.Entries) != 1 || m.Entries[0].Kind != tree.File {
			return errors.New("want exactly one file, the program")
		}
		program := m.Entries[0]
		if err := envsync.StoreBlob(programs.Path(program.Sum), program.Sum.String(), program.Size); err != nil {
			return fmt.Errorf("store %s: %w", program.Path, err)
		}
		return nil
	})
}

// get sends a folder or a blob (program) from this host's cache, for hosts
// that join the job later.
func get(ctx context.Context, of protocol.Get, _ io.Reader, out io.Writer) error {
	if of.Blob != "" {
		file, err := envsync.OpenBlob(of.Blob)
		if err != nil {
			return err
		}
		defer file.Close() // the file was only read
		return copyPart(out, file, 0, 0)
	}
	id, err := tree.ParseSum(of.Manifest)
	if err != nil {
		return err
	}
	files, err := jobfolder.Files()
	if err != nil {
		return err
	}
	return files.Upload(ctx, id, out)
}
