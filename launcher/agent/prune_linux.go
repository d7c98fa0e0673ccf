package agent

import (
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/plx-run/plx/launcher/protocol"
)

// prune is "agent prune [--older AGE]": it removes the folders of jobs that
// are over, and blobs that no other job uses, when nothing has changed in them
// for AGE. It prints a Pruned for each.
func prune(_ context.Context, args []string, std streams) error {
	flags := flag.NewFlagSet("prune", flag.ContinueOnError)
	flags.SetOutput(io.Discard)
	older := flags.Duration("older", 720*time.Hour, "")
	if err := flags.Parse(args); err != nil || flags.NArg() > 0 || *older < 0 {
		return usage("prune: want --older with an age such as 720h")
	}
	dir, err := root()
	if err != nil {
		return err
	}
	p := &pruner{root: dir, before: time.Now().Add(-*older), out: json.NewEncoder(std.out)}
	return errors.Join(p.jobs(), p.blobs())
}

type pruner struct {
	root   string
	before time.Time
	out    *json.Encoder
}

// jobs removes folders of jobs.
func (p *pruner) jobs() error {
	all, err := states()
	if err != nil {
		return err
	}
	var errs []error
	for f, s := range all {
		info, err := os.Stat(f.state())
		if err != nil || !info.ModTime().Before(p.before) || !finished(s) {
			continue
		}
		if err := p.remove(string(f)); err != nil {
			errs = append(errs, err)
			continue
		}
		_ = os.Remove(filepath.Dir(string(f))) // stays while other hosts' folders or the launcher's are in it
	}
	return errors.Join(errs...)
}

// finished reports whether nothing of the job can still be running here.
func finished(s protocol.State) bool { return alive(s) == dead }

// blobs removes blobs, and uploads that were never completed.
func (p *pruner) blobs() error {
	used, err := p.used()
	if err != nil {
		return err
	}
	dir := filepath.Join(p.root, "blobs")
	entries, err := os.ReadDir(dir)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("list blobs: %w", err)
	}
	var errs []error
	for _, e := range entries {
		info, err := e.Info()
		if err != nil || used[e.Name()] || !info.ModTime().Before(p.before) {
			continue
		}
		errs = append(errs, p.remove(filepath.Join(dir, e.Name())))
	}
	return errors.Join(errs...)
}

// used returns the blobs of all jobs that are left.
func (p *pruner) used() (map[string]bool, error) {
	files, err := filepath.Glob(filepath.Join(escape(p.root), "jobs", "*", "*", "blobs"))
	if err != nil {
		return nil, err
	}
	used := map[string]bool{}
	if own, err := os.Executable(); err == nil {
		used[filepath.Base(own)] = true // the next job wants it too
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

// remove removes path and prints what it was.
func (p *pruner) remove(path string) error {
	var bytes int64
	err := filepath.WalkDir(path, func(_ string, e fs.DirEntry, err error) error {
		if err != nil {
			return nil // counted as nothing; the removal tells what is wrong
		}
		if info, err := e.Info(); err == nil && e.Type().IsRegular() {
			bytes += info.Size()
		}
		return nil
	})
	if err = errors.Join(err, os.RemoveAll(path)); err != nil {
		return fmt.Errorf("prune: %w", err)
	}
	relative, err := filepath.Rel(p.root, path)
	if err != nil {
		return fmt.Errorf("prune: %w", err)
	}
	return p.out.Encode(Pruned{Path: relative, Bytes: bytes})
}
