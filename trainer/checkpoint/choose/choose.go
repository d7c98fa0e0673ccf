// Package choose decides from which checkpoint a training goes on.
//
// [Newest] takes the checkpoints that the tasks' folders hold, the newest
// first, until one passes three tests:
//
//  1. Its manifest and every file that the manifest lists lie in some folder,
//     at their sizes ([checkpoint.Candidates]).
//  2. It fits the program: the same variables, the same optimiser
//     ([checkpoint.Manifest.Fits], which the caller passes).
//  3. Some copy of every file has the SHA-256 that the manifest says. Each copy
//     is read by a task that has it.
//
// The log names the checkpoints that are skipped, and why. If there are
// checkpoints and none is good, that is an error: a training never begins anew
// by accident. Unfinished checkpoints do not count.
//
// The package knows no network: [Folders] asks the tasks.
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

// Choice is what a training resumes from.
type Choice struct {
	Manifest *checkpoint.Manifest      // the checkpoint to resume from; nil means that training begins anew
	Holders  map[string][]cluster.Task // by file: the tasks in whose folders it lies with the right checksum
}

// Folders asks the tasks about their folders.
type Folders interface {
	// Places returns what each folder holds.
	Places(ctx context.Context) ([]checkpoint.Place, error)
	// Verify has a task read a file of a checkpoint and returns in what it is
	// not the one that the manifest lists. The error names the task.
	Verify(ctx context.Context, by cluster.Task, id string, file checkpoint.File) error
}

// Newest returns the newest good checkpoint. fits says why the program cannot
// resume from one. logf gets a warning about each checkpoint and each copy that
// is not used.
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

// try puts one checkpoint to the three tests.
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
			return Choice{}, fmt.Errorf("checkpoint %s: %s is good on no host: %s", candidate.ID, file.Name, why)
		case why != "":
			logf(slog.LevelWarn, "a copy is not used: %s", why)
		}
	}
	return Choice{candidate.Manifest, holders}, nil
}

// copyOf is a file of a checkpoint in one folder.
type copyOf struct {
	file  checkpoint.File
	tasks []cluster.Task // the tasks that share the folder
	by    cluster.Task   // the task of these that verifies the file
	err   error          // what is wrong with the copy; nil means nothing
}

// copiesOf lists every file in every folder that holds it. It spreads the
// reading over the tasks that share a folder.
func copiesOf(candidate checkpoint.Candidate, places []checkpoint.Place) (all []*copyOf) {
	next := make([]int, len(places)) // by place: whose turn it is
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

// verify has every copy read, by all tasks at once and by each task one after
// the other. It returns, by file, which tasks hold a good copy and what is wrong
// with the others.
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
