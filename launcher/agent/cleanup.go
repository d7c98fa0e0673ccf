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

// prune removes the folders of ended jobs, and cached files that no job uses.
// It keeps the folder of a job with output files that the user has not
// fetched, or with files that cannot be read.
func prune(ctx context.Context, want protocol.PruneRequest) (answer protocol.PruneAnswer, err error) {
	if want.Older < 0 {
		return answer, errors.New("prune: the age must not be negative")
	}
	dir, err := jobfolder.Root()
	if err != nil {
		return answer, err
	}
	defer lockPrune(ctx, dir)()
	p := &pruner{ctx: ctx, root: dir, before: time.Now().Add(-want.Older), keepJobs: want.Keep, discard: want.Discard, dry: want.Dry}
	if err := errors.Join(p.jobs(), p.unstarted(), p.below("spares", nil), p.blobs(), p.envs(), p.files()); err != nil {
		answer.Failed = err.Error()
	}
	answer.Items = p.items
	return answer, nil
}

// lockPrune waits until no other process prunes dir, and returns a function
// that releases the lock. The lock is needed because several hosts can share a
// home folder, and "plx prune" runs on all of them at once: while one host
// removes a job's folder, another cannot tell whether that job still runs. On
// a file system without locks, or after ctx has ended, lockPrune returns
// without the lock.
func lockPrune(ctx context.Context, dir string) (done func()) {
	f, err := os.Open(dir)
	if err != nil {
		return func() {} // the caller reads dir next, and reports the error that Open returned
	}
	for unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB) == unix.EWOULDBLOCK && ctx.Err() == nil {
		time.Sleep(10 * time.Millisecond)
	}
	return func() { _ = f.Close() } // the file was opened only for its lock
}

type pruner struct {
	ctx         context.Context    // when ctx ends, the pruner stops before the next removal
	root        string             // path of ~/.plx
	before      time.Time          // remove only files and folders last changed before this time
	keepJobs    []string           // IDs of jobs whose folders must not be removed
	discard     bool               // true to remove a job's folder even if its output files were not fetched
	dry         bool               // true for a dry run, which reports what would be removed and removes nothing
	items       []protocol.Pruned  // everything removed (in a dry run: to be removed), and job folders kept for their output files
	removedJobs []jobfolder.Folder // job folders removed (in a dry run: to be removed); cached files that only they use can go too
	keepBlobs   []string           // checksums of blobs (cached programs) to keep although no job uses them; only gc sets it
}

// jobs removes the folders of jobs whose agent no longer runs. It keeps the
// jobs in keepJobs, jobs that the method keep protects, and jobs that may have
// left processes.
func (p *pruner) jobs() error {
	all, err := jobfolder.States()
	if err != nil {
		return err
	}
	var errs []error
	for f, s := range all {
		if !p.old(f.State()) || jobfolder.LifeOf(s) != jobfolder.Dead || slices.Contains(p.keepJobs, f.Job()) {
			continue
		}
		if left := jobfolder.LeftoverProcesses(s); s.Phase != protocol.Over && left != "" { // keep the folder: its state file is the only record of the job's leftover processes
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

// unstarted removes the folders of launches that were interrupted before they
// started an agent.
func (p *pruner) unstarted() error {
	all, err := jobfolder.Unstarted()
	if err != nil {
		return err
	}
	var errs []error
	for _, f := range all {
		if p.old(string(f)) && !slices.Contains(p.keepJobs, f.Job()) {
			errs = append(errs, p.folder(f))
		}
	}
	return errors.Join(errs...)
}

// folder removes the job folder f, and the job's parent folder if it is empty
// then.
func (p *pruner) folder(f jobfolder.Folder) error {
	if err := p.remove(string(f), string(f)); err != nil {
		return err
	}
	p.removedJobs = append(p.removedJobs, f)
	if !p.dry {
		_ = os.Remove(filepath.Dir(string(f))) // fails if the parent folder also contains the job's folder of another host or of the launcher
	}
	return nil
}

// keep reports whether the job's folder must be kept because it holds output
// files that were not fetched, or files that cannot be read. keep adds such a
// folder to p.items.
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

// blobs removes cached programs (blobs) that no job uses.
func (p *pruner) blobs() error {
	used, err := jobfolder.UsedBlobs(p.removedJobs)
	if err != nil {
		return err
	}
	for _, sum := range p.keepBlobs {
		used[sum] = true
	}
	return p.below("blobs", used)
}

// uploads removes the temporary files that interrupted uploads of plx have
// left (~/.plx/blobs/.*), if they are more than a day old.
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

// envs removes virtual environments that no job uses, and the remains of
// incomplete installations.
func (p *pruner) envs() error {
	used, err := jobfolder.UsedEnvs(p.removedJobs)
	if err != nil {
		return err
	}
	return p.below("envs", used)
}

// below removes each old entry of the folder ~/.plx/<folder> whose name is not
// in used. The entries of the folder "spares" are working directories that an
// earlier version of plx built in advance.
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
			install.Unprotect(path) // make the folder writable: an installed environment is read-only, and RemoveAll would fail
		}
		errs = append(errs, p.unused(path))
	}
	return errors.Join(errs...)
}

// files removes cached files of the folders that plx has sent, if no job uses
// them.
func (p *pruner) files() error {
	used, err := jobfolder.UsedManifests(p.removedJobs)
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
	if n > 0 { // report all files as a single item, because there may be thousands
		p.items = append(p.items, protocol.Pruned{Path: "files", Bytes: bytes})
	}
	if err != nil {
		return fmt.Errorf("prune files: %w", err)
	}
	return nil
}

// unused removes path if no launch has used it since p.before. A launch may
// begin to use path at any moment, and then updates its modification time. So
// unused first renames path, and renames it back if the modification time has
// changed.
func (p *pruner) unused(path string) error {
	if p.dry {
		return p.remove(path, path)
	}
	away := filepath.Join(filepath.Dir(path), leavingMark+filepath.Base(path))
	if err := os.Rename(path, away); errors.Is(err, fs.ErrNotExist) {
		return nil // another prune process has already removed path
	} else if err != nil {
		return fmt.Errorf("prune: %w", err)
	}
	if info, err := os.Lstat(away); err == nil && !info.ModTime().Before(p.before) {
		return os.Rename(away, path)
	}
	return p.remove(away, path)
}

// old reports whether path exists and was last changed before p.before.
func (p *pruner) old(path string) bool {
	info, err := os.Lstat(path)
	return err == nil && info.ModTime().Before(p.before)
}

const leavingMark = jobfolder.LeavingMark

// remove deletes the file or folder path, except in a dry run, and adds an
// item with its size to p.items. name is the original path, which the report
// shows because path may be the result of a rename.
func (p *pruner) remove(path, name string) error {
	if err := p.ctx.Err(); err != nil {
		return fmt.Errorf("prune: %w", err)
	}
	var bytes int64
	err := filepath.WalkDir(path, func(_ string, e fs.DirEntry, err error) error {
		if err != nil {
			return nil // count the size as 0; RemoveAll below reports the error
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
	unusedFor = 30 * 24 * time.Hour // time without use after which gc removes a file
	gcTime    = time.Minute         // timeout of one gc run; the next run removes the remaining files
)

// gc is the command "agent gc". At most once a day, it removes cached
// programs, files and virtual environments that no job has used for 30 days.
// The supervisor (the agent's process that runs tasks) starts gc while tasks
// run. gc keeps all job folders, with their logs and outputs.
func gc(ctx context.Context, _ []string, _ streams) error {
	lowerPriority()
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
	defer note.Close() // closing the file releases its lock
	p := &pruner{ctx: ctx, root: root, before: now.Add(-unusedFor)}
	if err := p.oldJobs(); err != nil {
		return fmt.Errorf("gc: %w", err)
	}
	if err := errors.Join(p.below("spares", nil), p.blobs(), p.uploads(), p.envs(), p.files(), p.below("verified", nil), os.Chtimes(note.Name(), now, now)); err != nil {
		return fmt.Errorf("gc: %w", err)
	}
	return nil
}

// lowerPriority lowers the CPU and disk priority of this process. When tasks
// use all cores, gc then gets about a tenth of one core. lowerPriority does
// nothing unless the process leads its own process group. It ignores errors:
// gc then runs at normal priority.
func lowerPriority() {
	const (
		low     = 10
		ofGroup = 2         // the kernel's constant IOPRIO_WHO_PGRP: the priority is for a process group
		last    = 2<<13 | 7 // the kernel's lowest disk priority: level 7 of the class IOPRIO_CLASS_BE
	)
	if unix.Getpgrp() != os.Getpid() {
		return // a user has started gc from a shell: keep the normal priority
	}
	runtime.GOMAXPROCS(1)
	_ = unix.Setpriority(unix.PRIO_PGRP, 0, low)
	_, _, _ = unix.Syscall(unix.SYS_IOPRIO_SET, ofGroup, 0, last)
	// The kernel schedules each session as a group (autogroup) with a priority
	// of its own, so lower that priority too.
	_ = os.WriteFile("/proc/self/autogroup", []byte(strconv.Itoa(low)), 0)
}

// takeTurn locks the file that records the last gc run, and reports in due
// whether gc should run now. due is false if another process holds the lock,
// on this host or on another host with the same home folder.
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

// oldJobs adds jobs that ended before p.before to p.removedJobs, so that gc
// may remove the cached files that they use. gc still keeps two kinds of files
// of these jobs. The first is the agent's binary, which "plx logs" runs. The
// second is the files that plx sent for a job with --output patterns, because
// a file counts as output if it differs from them.
func (p *pruner) oldJobs() error {
	all, err := jobfolder.States()
	if err != nil {
		return err
	}
	for f, s := range all {
		p.keepBlobs = append(p.keepBlobs, filepath.Base(s.Binary))
		if !p.old(f.State()) || jobfolder.LifeOf(s) != jobfolder.Dead {
			continue
		}
		if named, made, err := outputs.Unfetched(f); err == nil && named.Files+made.Files == 0 && len(s.Outputs) == 0 {
			p.removedJobs = append(p.removedJobs, f)
		}
	}
	return nil
}
