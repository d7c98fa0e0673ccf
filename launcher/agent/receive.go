//go:build linux

package agent

import (
	"context"
	"errors"
	"fmt"

	"github.com/plx-run/plx/envsync/tree"
	"github.com/plx-run/plx/launcher/agent/jobfolder"
)

// receive is "agent receive [JOB FOLDER [SUM...]]": it stores the files of a folder that
// tree.Send sends on its standard input. For a job it also makes the working directory,
// with the files of archives.
func receive(ctx context.Context, args []string, std streams) error {
	files, err := jobfolder.Files()
	if err != nil {
		return err
	}
	if len(args) == 0 {
		return files.Serve(ctx, std.in, std.out, nil)
	}
	if len(args) == 1 {
		return usage("want a job and a folder")
	}
	f, err := jobfolder.Of(args[0], args[1])
	if err != nil {
		return err
	}
	return files.Serve(ctx, std.in, std.out, func(id tree.Sum) error {
		if err := f.Build(ctx, id, args[2:]); err != nil {
			return errors.Join(fmt.Errorf("make the working directory: %w", err), f.Discard())
		}
		return nil
	})
}

// discard is "agent discard JOB FOLDER": it removes what receive has made for a job that
// is not started.
func discard(_ context.Context, f jobfolder.Folder, _ streams) error { return f.Discard() }

// give is "agent give MANIFEST": it writes a folder that receive has stored, for hosts
// that join the job.
func give(ctx context.Context, args []string, std streams) error {
	if len(args) != 1 {
		return usage("want the name of a manifest")
	}
	id, err := tree.ParseSum(args[0])
	if err != nil {
		return err
	}
	files, err := jobfolder.Files()
	if err != nil {
		return err
	}
	return files.Give(ctx, id, std.out)
}
