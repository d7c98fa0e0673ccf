//go:build linux

package agent

import (
	"bufio"
	"bytes"
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

// receive is "agent receive [JOB FOLDER]": it stores the files of
// a folder that tree.Send sends on its standard input. For a job it also makes the working
// directory. "agent receive --program" makes the only file of the folder a blob.
func receive(ctx context.Context, args []string, std streams) error {
	if len(args) == 1 && args[0] == "--program" {
		return receiveProgram(ctx, std)
	}
	files, err := jobfolder.Files()
	if err != nil {
		return err
	}
	if len(args) == 0 {
		return files.Serve(ctx, std.in, std.out, sockets.Relay{}, nil)
	}
	if len(args) != 2 {
		return usage("want a job and a folder")
	}
	f, err := jobfolder.Of(args[0], args[1])
	if err != nil {
		return err
	}
	return files.Serve(ctx, std.in, std.out, sockets.Relay{}, func(id tree.Sum) error { return makeWorkdir(ctx, f, id) })
}

func makeWorkdir(ctx context.Context, f jobfolder.Folder, id tree.Sum) error {
	if err := f.Build(ctx, id); err != nil {
		return errors.Join(fmt.Errorf("make the working directory: %w", err), f.Discard())
	}
	return nil
}

var errLacks = errors.New("this host lacks files of it")

// furnish does what "agent receive" does with a folder whose files are all here.
func furnish(ctx context.Context, of protocol.Furnish) error {
	id, err := tree.ParseSum(of.Manifest)
	if err != nil {
		return err
	}
	if of.Job != "" {
		f, err := jobfolder.Of(of.Job, of.Folder)
		if err != nil {
			return err
		}
		return makeWorkdir(ctx, f, id) // looks for each file
	}
	files, err := jobfolder.Files()
	if err == nil && !files.Holds(id) {
		err = errLacks
	}
	return err
}

func receiveProgram(ctx context.Context, std streams) error {
	programs, err := jobfolder.Programs()
	if err != nil {
		return err
	}
	in := bufio.NewReader(std.in)
	m, err := tree.ReadManifest(in)
	if err != nil {
		return err
	}
	if len(m.Entries) != 1 || m.Entries[0].Kind != tree.File {
		return errors.New("want one file")
	}
	program := m.Entries[0]
	sum := program.Sum.String()
	if len(envsync.Having(map[string]int64{sum: program.Size})) > 0 {
		_, err := std.out.Write(tree.NewSet(m))
		if err == nil {
			_, err = io.WriteString(std.out, tree.Answer)
		}
		return err
	}
	var again bytes.Buffer
	if err := m.Write(&again); err != nil {
		return err
	}
	return programs.Serve(ctx, io.MultiReader(&again, in), std.out, sockets.Relay{}, func(tree.Sum) error {
		if err := envsync.Settle(programs.Path(program.Sum), sum, program.Size); err != nil {
			return fmt.Errorf("store %s: %w", program.Path, err)
		}
		return nil
	})
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
