//go:build linux

package jobfolder

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"github.com/plx-run/plx/envsync"
	"github.com/plx-run/plx/launcher/protocol"
)

// Furnish makes the working folders of tasks, each with the files that the user
// sent. It leaves a folder that exists as it is, so a later generation finds the
// files of the one before.
func (f Folder) Furnish(ctx context.Context, tasks []protocol.TaskSpec, archives []string) error {
	for _, t := range tasks {
		if _, err := os.Stat(f.Task(t.Task)); err == nil {
			continue
		}
		if err := furnish(ctx, f.Task(t.Task), archives); err != nil {
			return fmt.Errorf("make the folder of %s: %w", t.Task, err)
		}
	}
	return nil
}

// furnish fills a folder under another name first, so that a folder that exists
// is complete.
func furnish(ctx context.Context, dir string, archives []string) error {
	if err := os.MkdirAll(filepath.Dir(dir), 0o700); err != nil {
		return err
	}
	temporary, err := os.MkdirTemp(filepath.Dir(dir), "."+filepath.Base(dir)+"-"+hostPid()+"-*")
	if err != nil {
		return err
	}
	for _, sum := range archives {
		if err := unpack(ctx, sum, temporary); err != nil {
			return errors.Join(fmt.Errorf("unpack files: %w", err), os.RemoveAll(temporary))
		}
	}
	if err := os.Rename(temporary, dir); err != nil {
		return errors.Join(err, os.RemoveAll(temporary))
	}
	return nil
}

func unpack(ctx context.Context, sum, dir string) error {
	path, err := BlobPath(sum)
	if err != nil {
		return err
	}
	archive, err := os.Open(path)
	if err != nil {
		return err
	}
	defer archive.Close() // only read
	return envsync.Unpack(ctx, archive, dir)
}

// RecordBlobs writes down which blobs the job uses, this executable among them,
// so that "agent prune" keeps them.
func (f Folder) RecordBlobs(spec protocol.Spec) error {
	sums := append([]string{}, spec.Archives...)
	if spec.Command.Blob != "" {
		sums = append(sums, spec.Command.Blob)
	}
	if own, err := os.Executable(); err == nil {
		if sum := own[strings.LastIndexByte(own, '/')+1:]; len(sum) == 64 {
			sums = append(sums, sum)
		}
	}
	if err := replace(f.Blobs(), []byte(strings.Join(sums, "\n")+"\n")); err != nil {
		return fmt.Errorf("record the job's files: %w", err)
	}
	return nil
}

// UsedBlobs returns the content hashes that the jobs under ~/.plx use, and that
// of this executable.
func UsedBlobs() (map[string]bool, error) {
	files, err := each(blobsName)
	if err != nil {
		return nil, err
	}
	used := map[string]bool{}
	if own, err := os.Executable(); err == nil {
		used[filepath.Base(own)] = true // the next job needs it too
	}
	for _, file := range files {
		text, err := os.ReadFile(file)
		if err != nil {
			return nil, fmt.Errorf("read which blobs a job uses: %w", err)
		}
		for _, sum := range strings.Fields(string(text)) {
			used[sum] = true
		}
	}
	return used, nil
}
