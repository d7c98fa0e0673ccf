//go:build linux

package agent

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"runtime"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/plx-run/plx/envsync"
	"github.com/plx-run/plx/envsync/tree"
	"github.com/plx-run/plx/launcher/agent/jobfolder"
	"github.com/plx-run/plx/launcher/agent/sockets"
	"github.com/plx-run/plx/launcher/protocol"
)

// receive is "agent receive [JOB FOLDER [--source=NAME]]": it stores the files of
// a folder that tree.Send sends on its standard input. For a job it also makes the working
// directory. NAME is as in Spec.Source. "agent receive --program" makes the only file of the
// folder a blob.
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
	if len(args) == 1 {
		return usage("want a job and a folder")
	}
	f, err := jobfolder.Of(args[0], args[1])
	if err != nil {
		return err
	}
	source, given := "", len(args) > 2
	if given {
		source, given = strings.CutPrefix(args[2], "--source=")
	}
	if len(args) > 3 || len(args) == 3 && !given {
		return usage("want --source=NAME after the folder")
	}
	return files.Serve(ctx, std.in, std.out, sockets.Relay{}, func(id tree.Sum) error { return makeWorkdir(ctx, f, id, source) })
}

func makeWorkdir(ctx context.Context, f jobfolder.Folder, id tree.Sum, source string) error {
	if err := f.Build(ctx, id, source); err != nil {
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
		return makeWorkdir(ctx, f, id, of.Source) // looks for each file
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

// spare is "agent spare JOB FOLDER SOURCE MANIFEST": it makes the working directory of
// the next job, see Spec.Source. The supervisor starts it while tasks run, so it leaves
// them processor and disk.
func spare(ctx context.Context, args []string, _ streams) error {
	if len(args) != 4 {
		return usage("want a job, a folder, a source and a manifest")
	}
	f, err := jobfolder.Of(args[0], args[1])
	if err != nil {
		return err
	}
	id, err := tree.ParseSum(args[3])
	if err != nil {
		return err
	}
	yield()
	if err := jobfolder.MakeSpare(ctx, f, id, args[2]); err != nil {
		return fmt.Errorf("make a spare working directory: %w", err)
	}
	return nil
}

// yield gives all threads of this process, which must be alone in its process group, a low
// priority: tasks that use all cores leave it about a tenth of one. What the kernel does
// not allow is left as it is.
func yield() {
	const (
		low     = 10
		ofGroup = 2         // IOPRIO_WHO_PGRP
		last    = 2<<13 | 7 // IOPRIO_CLASS_BE, the lowest level
	)
	if unix.Getpgrp() != os.Getpid() {
		return // whoever runs the command by hand keeps the priority
	}
	runtime.GOMAXPROCS(1)
	_ = unix.Setpriority(unix.PRIO_PGRP, 0, low)
	_, _, _ = unix.Syscall(unix.SYS_IOPRIO_SET, ofGroup, 0, last)
	// A session of its own has a group of the scheduler too, with a priority of its own.
	_ = os.WriteFile("/proc/self/autogroup", []byte(strconv.Itoa(low)), 0)
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
