// Package choose selects the checkpoint from which a training resumes.
//
// [Newest] goes through the checkpoints in the tasks' folders, the newest
// first, until a checkpoint passes three tests:
//
//  1. Some folder has its manifest, and every file in the manifest exists in some
//     folder with the right size ([checkpoint.Candidates]).
//  2. It fits the program: the variables and the optimiser are the same
//     ([checkpoint.Manifest.Fits], which the caller passes as fits).
//  3. At least one copy of every file has the SHA-256 in the manifest. A task that
//     has the copy reads it to find out.
//
// The log names each skipped checkpoint and the reason. If there are finished
// checkpoints but none passes the tests, Newest returns an error, so that
// training does not start from scratch by accident.
//
// The package does not use the network itself: the caller's [Folders] does.
package choose

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"sync"

	"github.com/plx-run/plx/trainer/checkpoint"
	"github.com/plx-run/plx/trainer/cluster"
)

// Choice is the checkpoint from which a training resumes, and where its files
// are.
type Choice struct {
	Manifest *checkpoint.Manifest      // manifest of the checkpoint; nil means that training begins from scratch
	Holders  map[string][]cluster.Task // by file name: the tasks whose folders have the file with the right checksum
}

// Folders gives access to the checkpoint folders of all tasks.
type Folders interface {
	// Places lists the checkpoints in each folder. Several tasks may share a
	// folder.
	Places(ctx context.Context) ([]checkpoint.Place, error)
	// Verify asks the task named by the parameter by to read one file of the
	// checkpoint id. It returns an error that names the task if the file's
	// size or checksum differs from the parameter file, its entry in the
	// manifest.
	Verify(ctx context.Context, by cluster.Task, id string, file checkpoint.File) error
}

// Newest returns the newest checkpoint whose files are intact and for which
// fits returns nil; fits returns why the program cannot resume from a
// checkpoint. logf receives a warning for each checkpoint that is skipped and
// each damaged copy.
func Newest(ctx context.Context, folders Folders, fits func(*checkpoint.Manifest) error,
	logf func(level slog.Level, format string, args ...any)) (Choice, error) {
	places, err := folders.Places(ctx)
	if err != nil {
		return Choice{}, err
	}
	var bad []string
	for _, candidate := range checkpoint.Candidates(places) {
		c, err := try(ctx, folders, places, candidate, fits, logf)
		if err == nil {
			return c, nil
		}
		if ctx.Err() != nil {
			return Choice{}, err
		}
		logf(slog.LevelWarn, "skipped: %v", err)
		if !candidate.Unfinished {
			bad = append(bad, err.Error())
		}
	}
	if bad != nil {
		return Choice{}, fmt.Errorf("no checkpoint is good to resume from: %s", strings.Join(bad, "; "))
	}
	logf(slog.LevelInfo, "there is no checkpoint to resume from: the training begins anew")
	return Choice{}, nil
}

// try tests whether training can resume from the candidate. It can if no file
// is missing, the checkpoint fits the program, and every file has a copy with
// the right checksum.
func try(ctx context.Context, folders Folders, places []checkpoint.Place, candidate checkpoint.Candidate,
	fits func(*checkpoint.Manifest) error, logf func(slog.Level, string, ...any)) (Choice, error) {
	if candidate.Missing != "" {
		return Choice{}, errors.New(candidate.Missing)
	}
	if err := fits(candidate.Manifest); err != nil {
		return Choice{}, err
	}
	holders, faults := verify(ctx, folders, candidate.ID, copiesOf(candidate, places))
	for _, file := range candidate.Manifest.Files {
		why := strings.Join(faults[file.Name], ", ")
		switch {
		case holders[file.Name] == nil:
			return Choice{}, fmt.Errorf("checkpoint %s: %s has no intact copy on any host: %s", candidate.ID, file.Name, why)
		case why != "":
			logf(slog.LevelWarn, "ignored an unusable copy: %s", why)
		}
	}
	return Choice{candidate.Manifest, holders}, nil
}

// copyOf is the copy of a checkpoint's file in one folder, and the result of
// reading it.
type copyOf struct {
	file  checkpoint.File
	tasks []cluster.Task // the tasks that share the folder
	by    cluster.Task   // the task that reads and verifies this copy; an element of tasks
	err   error          // why the copy cannot be used, set by verify; nil means that it is intact
}

// copiesOf lists every copy of every file of the candidate. If several tasks
// share a folder, each of them is assigned some of the copies to read.
func copiesOf(candidate checkpoint.Candidate, places []checkpoint.Place) (all []*copyOf) {
	next := make([]int, len(places)) // by index in places: number of copies assigned so far, to rotate among the tasks
	for _, file := range candidate.Manifest.Files {
		for i, p := range places {
			if slices.Contains(candidate.Holders[file.Name], p.Tasks[0]) {
				all = append(all, &copyOf{file: file, tasks: p.Tasks, by: p.Tasks[next[i]%len(p.Tasks)]})
				next[i]++
			}
		}
	}
	return all
}

// verify reads every copy. The tasks read at the same time, and each task
// reads its copies one after the other. By file name, verify returns the tasks
// that have an intact copy, and what is wrong with the other copies.
func verify(ctx context.Context, folders Folders, id string, copies []*copyOf) (holders map[string][]cluster.Task, faults map[string][]string) {
	readers := map[cluster.Task][]*copyOf{}
	for _, c := range copies {
		readers[c.by] = append(readers[c.by], c)
	}
	var reading sync.WaitGroup
	for _, list := range readers {
		reading.Go(func() {
			for _, c := range list {
				c.err = folders.Verify(ctx, c.by, id, c.file)
			}
		})
	}
	reading.Wait()
	holders, faults = map[string][]cluster.Task{}, map[string][]string{}
	for _, c := range copies {
		if c.err != nil {
			faults[c.file.Name] = append(faults[c.file.Name], c.err.Error())
			continue
		}
		holders[c.file.Name] = append(holders[c.file.Name], c.tasks...)
	}
	return holders, faults
}
