//go:build linux

package agent

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/plx-run/plx/envsync/venv/install"
	"github.com/plx-run/plx/launcher/agent/jobfolder"
	"github.com/plx-run/plx/launcher/agent/outputs"
	"github.com/plx-run/plx/launcher/protocol"
)

// prune removes folders of jobs that are over and what no job uses. It keeps jobs with files
// that they made and nobody has fetched, and those of which it cannot tell.
func prune(ctx context.Context, want protocol.PruneRequest) (answer protocol.PruneAnswer, err error) {
	if want.Older < 0 {
		return answer, errors.New("prune: want an age")
	}
	dir, err := jobfolder.Root()
	if err != nil {
		return answer, err
	}
	defer alone(ctx, dir)()
	p := &pruner{ctx: ctx, root: dir, before: time.Now().Add(-want.Older), stay: want.Keep, discard: want.Discard, dry: want.Dry}
	if err := errors.Join(p.jobs(), p.unstarted(), p.below("spares", nil), p.blobs(), p.envs(), p.files()); err != nil {
		answer.Failed = err.Error()
	}
	answer.Items = p.items
	return answer, nil
}

// alone waits until no other prune is at work in a folder, and returns what lets the next one
// begin. Hosts that share a home are pruned at the same time: what one removes, another cannot
// judge. A file system without locks lets all in, as does the end of ctx.
func alone(ctx context.Context, dir string) (done func()) {
	f, err := os.Open(dir)
	if err != nil {
		return func() {} // who reads the folder says it
	}
	for unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB) == unix.EWOULDBLOCK && ctx.Err() == nil {
		time.Sleep(10 * time.Millisecond)
	}
	return func() { _ = f.Close() } // it is only read
}

type pruner struct {
	ctx     context.Context    // its end ends the pruner before the next removal
	root    string             // ~/.plx
	before  time.Time          // only what was last changed before this time is removed
	stay    []string           // ids of jobs that are kept
	discard bool               // what a job made and nobody has fetched is removed too
	dry     bool               // nothing is removed
	items   []protocol.Pruned  // what was removed, or would have been, and jobs that were kept
	leaving []jobfolder.Folder // were removed, or would have been: what they use is not in use
	spared  []string           // blobs that stay although no job uses them
}

// jobs removes folders of jobs whose agent is dead.
func (p *pruner) jobs() error {
	all, err := jobfolder.States()
	if err != nil {
		return err
	}
	var errs []error
	for f, s := range all {
		if !p.old(f.State()) || jobfolder.LifeOf(s) != jobfolder.Dead || slices.Contains(p.stay, f.Job()) {
			continue
		}
		if left := jobfolder.Left(s); s.Phase != protocol.Over && left != "" { // without the folder nobody could tell
			errs = append(errs, fmt.Errorf("job %s is kept: %s", f.Job(), left))
			continue
		}
		if kept, err := p.keep(f); kept || err != nil {
			errs = append(errs, err)
			continue
		}
		errs = append(errs, p.folder(f))
	}
	return errors.Join(errs...)
}

// unstarted removes what launches left that were cut off before they started an agent.
func (p *pruner) unstarted() error {
	all, err := jobfolder.Unstarted()
	if err != nil {
		return err
	}
	var errs []error
	for _, f := range all {
		if p.old(string(f)) && !slices.Contains(p.stay, f.Job()) {
			errs = append(errs, p.folder(f))
		}
	}
	return errors.Join(errs...)
}

// folder removes the folder of a job.
func (p *pruner) folder(f jobfolder.Folder) error {
	if err := p.remove(string(f), string(f)); err != nil {
		return err
	}
	p.leaving = append(p.leaving, f)
	if !p.dry {
		_ = os.Remove(filepath.Dir(string(f))) // fails while it has folders of other hosts or of the launcher
	}
	return nil
}

// keep reports whether a job has made files that nobody has fetched, or may have, and notes
// how many.
func (p *pruner) keep(f jobfolder.Folder) (bool, error) {
	if p.discard {
		return false, nil
	}
	named, made, unchecked := outputs.Unfetched(f)
	item := protocol.Pruned{Bytes: named.Bytes + made.Bytes, Outputs: named.Files + made.Files, Job: f.Job(), Folder: f.Name()}
	if unchecked != nil {
		item.Outputs, item.Unchecked = max(item.Outputs, 1), strings.ToValidUTF8(unchecked.Error(), "?")
	}
	if item.Outputs == 0 {
		return false, nil
	}
	var err error
	if item.Path, err = filepath.Rel(p.root, string(f)); err != nil {
		return true, fmt.Errorf("prune: %w", err)
	}
	p.items = append(p.items, item)
	return true, nil
}

// blobs removes unused blobs and uploads that were never completed.
func (p *pruner) blobs() error {
	used, err := jobfolder.UsedBlobs(p.leaving)
	if err != nil {
		return err
	}
	for _, sum := range p.spared {
		used[sum] = true
	}
	return p.below("blobs", used)
}

// uploads removes what a cut-off bootstrap has left, a day later.
func (p *pruner) uploads() error {
	left, err := filepath.Glob(filepath.Join(p.root, "blobs", ".*"))
	errs := []error{err}
	for _, file := range left {
		if info, err := os.Lstat(file); err == nil && time.Since(info.ModTime()) > 24*time.Hour {
			errs = append(errs, p.remove(file, file))
		}
	}
	return errors.Join(errs...)
}

// envs removes virtual environments that no job uses, and what was left of some that
// were not completed.
func (p *pruner) envs() error {
	used, err := jobfolder.UsedEnvs(p.leaving)
	if err != nil {
		return err
	}
	return p.below("envs", used)
}

// below removes what is in a folder of ~/.plx, neither used nor new. An earlier version of plx has
// made the folder spares, of working directories ahead of jobs.
func (p *pruner) below(folder string, used map[string]bool) error {
	dir := filepath.Join(p.root, folder)
	entries, err := os.ReadDir(dir)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("list %s: %w", folder, err)
	}
	var errs []error
	for _, e := range entries {
		path := filepath.Join(dir, e.Name())
		if used[e.Name()] || !p.old(path) {
			continue
		}
		if e.IsDir() && !p.dry {
			install.Unprotect(path) // an environment is read-only
		}
		errs = append(errs, p.unused(path))
	}
	return errors.Join(errs...)
}

// files removes contents of folders that no job uses.
func (p *pruner) files() error {
	used, err := jobfolder.UsedManifests(p.leaving)
	if err != nil {
		return err
	}
	files, err := jobfolder.Files()
	if err != nil {
		return err
	}
	n, bytes := 0, int64(0)
	err = files.Prune(p.ctx, used, p.before, func(path string, size int64) error {
		n, bytes = n+1, bytes+size
		if p.dry {
			return nil
		}
		return os.Remove(path)
	})
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if n > 0 { // one line for all: there may be thousands
		p.items = append(p.items, protocol.Pruned{Path: "files", Bytes: bytes})
	}
	if err != nil {
		return fmt.Errorf("prune files: %w", err)
	}
	return nil
}

// unused removes what nobody has used since p.before. A launch may begin to use it at any
// moment: it touches what it finds. So path gets another name first, and gets its own back
// if it was touched meanwhile.
func (p *pruner) unused(path string) error {
	if p.dry {
		return p.remove(path, path)
	}
	away := filepath.Join(filepath.Dir(path), leavingMark+filepath.Base(path))
	if err := os.Rename(path, away); errors.Is(err, fs.ErrNotExist) {
		return nil // another prune was faster
	} else if err != nil {
		return fmt.Errorf("prune: %w", err)
	}
	if info, err := os.Lstat(away); err == nil && !info.ModTime().Before(p.before) {
		return os.Rename(away, path)
	}
	return p.remove(away, path)
}

// old reports whether a file or a folder is there, and was last changed before p.before.
func (p *pruner) old(path string) bool {
	info, err := os.Lstat(path)
	return err == nil && info.ModTime().Before(p.before)
}

const leavingMark = jobfolder.LeavingMark

// remove removes path, unless nothing is to be removed, and notes its size under the name
// that it had.
func (p *pruner) remove(path, name string) error {
	if err := p.ctx.Err(); err != nil {
		return fmt.Errorf("prune: %w", err)
	}
	var bytes int64
	err := filepath.WalkDir(path, func(_ string, e fs.DirEntry, err error) error {
		if err != nil {
			return nil // counted as nothing; RemoveAll reports the error
		}
		if info, err := e.Info(); err == nil && e.Type().IsRegular() {
			bytes += info.Size()
		}
		return nil
	})
	if !p.dry {
		err = errors.Join(err, os.RemoveAll(path))
	}
	if err != nil {
		return fmt.Errorf("prune: %w", err)
	}
	relative, err := filepath.Rel(p.root, name)
	if err != nil {
		return fmt.Errorf("prune: %w", err)
	}
	p.items = append(p.items, protocol.Pruned{Path: relative, Bytes: bytes})
	return nil
}

const (
	unusedFor = 30 * 24 * time.Hour // after which gc removes what no job has used
	gcTime    = time.Minute         // bounds one time; the rest waits for the next
)

// gc is "agent gc": once a day it removes programs, contents of folders, virtual
// environments that no job has used for 30 days. The
// supervisor starts it while tasks run, if it is due. Folders of jobs stay, with all logs and outputs.
func gc(ctx context.Context, _ []string, _ streams) error {
	yield()
	ctx, cancel := context.WithTimeout(ctx, gcTime)
	defer cancel()
	root, err := jobfolder.Root()
	if err != nil {
		return err
	}
	now := time.Now()
	note, due, err := takeTurn(jobfolder.LastGC(root), now)
	if err != nil || !due {
		return err
	}
	defer note.Close() // releases the lock
	p := &pruner{ctx: ctx, root: root, before: now.Add(-unusedFor)}
	if err := p.oldJobs(); err != nil {
		return fmt.Errorf("gc: %w", err)
	}
	if err := errors.Join(p.below("spares", nil), p.blobs(), p.uploads(), p.envs(), p.files(), p.below("verified", nil), os.Chtimes(note.Name(), now, now)); err != nil {
		return fmt.Errorf("gc: %w", err)
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

// takeTurn locks the file, and reports whether gc did not run lately in the home. Without a
// lock another process does this, of this host or of one that shares the home.
func takeTurn(path string, now time.Time) (note *os.File, due bool, err error) {
	if note, err = os.OpenFile(path, os.O_CREATE|os.O_RDWR, 0o600); err != nil {
		return nil, false, err
	}
	err = unix.Flock(int(note.Fd()), unix.LOCK_EX|unix.LOCK_NB)
	info, failed := note.Stat()
	switch {
	case errors.Is(err, unix.EWOULDBLOCK):
		err = nil
	case err == nil && failed == nil && jobfolder.GCDue(info, now):
		if _, err = note.WriteString("."); err == nil {
			return note, true, nil
		}
	default:
		err = errors.Join(err, failed)
	}
	return nil, false, errors.Join(err, note.Close())
}

// oldJobs counts jobs as leaving that ended before p.before, so that what they used is no
// longer in use: but for the agent's binary, which reads the logs, and what was sent to
// jobs with outputs, from which their outputs are told.
func (p *pruner) oldJobs() error {
	all, err := jobfolder.States()
	if err != nil {
		return err
	}
	for f, s := range all {
		p.spared = append(p.spared, filepath.Base(s.Binary))
		if !p.old(f.State()) || jobfolder.LifeOf(s) != jobfolder.Dead {
			continue
		}
		if named, made, err := outputs.Unfetched(f); err == nil && named.Files+made.Files == 0 && len(s.Outputs) == 0 {
			p.leaving = append(p.leaving, f)
		}
	}
	return nil
}
