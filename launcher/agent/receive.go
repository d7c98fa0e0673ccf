//go:build linux

package agent

import (
	"context"

	"github.com/plx-run/plx/envsync/tree"
	"github.com/plx-run/plx/launcher/agent/jobfolder"
)

// receive is "agent receive": it stores the files of a folder that tree.Send sends on
// its standard input.
func receive(ctx context.Context, args []string, std streams) error {
	if len(args) != 0 {
		return usage("receive takes no arguments")
	}
	files, err := jobfolder.Files()
	if err != nil {
		return err
	}
	return files.Serve(ctx, std.in, std.out)
}

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
