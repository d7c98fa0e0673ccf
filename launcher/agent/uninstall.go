//go:build linux

package agent

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/plx-run/plx/envsync/venv/install"
	"github.com/plx-run/plx/internal/filelock"
	"github.com/plx-run/plx/launcher/agent/jobfolder"
	"github.com/plx-run/plx/launcher/protocol"
)

// pruneAll implements "plx prune --all": it removes the whole folder ~/.plx,
// unless a job or another plx process uses it. If some files must be kept,
// pruneAll removes the same files as prune, but of any age.
func pruneAll(ctx context.Context, want protocol.PruneRequest, use *jobfolder.HomeLock) (answer protocol.PruneAnswer, err error) {
	dir, err := jobfolder.Root()
	if err != nil {
		return answer, err
	}
	p := &pruner{ctx: ctx, root: dir, before: time.Now(), keepJobs: want.Keep, discard: want.Discard, dry: want.Dry}
	if answer.Busy, err = p.runs(); err != nil || answer.Busy != "" {
		return answer, err
	}
	if !want.Dry {
		if answer.Busy = p.otherUse(use); answer.Busy != "" {
			return answer, nil
		}
		defer use.Share()
	}
	kept, err := p.keptFiles(want.Forgotten)
	if err != nil {
		return answer, err
	}
	jobs, unread, err := p.keptJobs()
	if err != nil {
		return answer, err
	}
	kept = append(kept, unread...)
	if len(kept)+jobs > 0 {
		p.items, p.before = kept, time.Now()
		err = errors.Join(p.jobs(), p.unstarted(), p.below("spares", nil), p.blobs(), p.uploads(), p.envs(), p.files())
	} else {
		answer.Rest, answer.Busy, err = p.removeAll()
	}
	if err != nil {
		answer.Failed = err.Error()
	}
	answer.Items = p.items
	return answer, nil
}

// runs describes the jobs that run, or may run on another host with the same
// home folder; it returns "" if there are none. If a job's agent is dead, runs
// records in the state file that the job is over, because another host cannot
// detect that.
func (p *pruner) runs() (string, error) {
	all, err := jobfolder.States()
	if err != nil {
		return "", err
	}
	var busy []string
	for f, s := range all {
		switch jobfolder.LifeOf(s) {
		case jobfolder.Living:
			busy = append(busy, "job "+f.Job()+" runs")
		case jobfolder.Unknown:
			busy = append(busy, fmt.Sprintf("job %s may run on %s, which has the same home", f.Job(), jobfolder.HostOf(s.Machine)))
		case jobfolder.Dead:
			if s.Phase == protocol.Over {
				continue
			}
			if left := jobfolder.LeftoverProcesses(s); left != "" {
				busy = append(busy, fmt.Sprintf("job %s: %s", f.Job(), left))
			} else {
				err = errors.Join(err, f.WriteState(jobfolder.Current(s)))
			}
		}
	}
	slices.Sort(busy)
	return strings.Join(slices.Compact(busy), ", "), err
}

const (
	// An upload counts as in progress if its file was last written less than
	// uploadAge ago.
	uploadAge = time.Minute
	beingSent = "plx is just being sent there"
)

// uploading reports whether an upload of the plx binary into the folder blobs is
// in progress.
func uploading(blobs string) bool {
	entries, _ := os.ReadDir(blobs) // a missing folder has no uploads
	return slices.ContainsFunc(entries, func(e fs.DirEntry) bool {
		info, err := e.Info()
		return err == nil && e.Name()[0] == '.' && time.Since(info.ModTime()) < uploadAge
	})
}

// otherUse describes which other processes, apart from jobs, use ~/.plx. If
// there are none, it returns "", and this process holds the exclusive lock of
// ~/.plx until it ends or calls use.Share.
func (p *pruner) otherUse(use *jobfolder.HomeLock) (busy string) {
	if !use.Alone() {
		return "another plx works there, such as a launch or plx exec"
	}
	defer func() {
		if busy != "" {
			use.Share()
		}
	}()
	if uploading(filepath.Join(p.root, "blobs")) {
		return beingSent
	}
	launches, _ := filepath.Glob(filepath.Join(p.literal(), "launching", "[0-9]*")) // the error is always nil, because the pattern is valid
	for _, file := range launches {
		if locked, _ := filelock.Locked(file); locked { // on an error, assume that the launch has ended: its file is gone, or the file system has no locks
			return "a launch is being prepared there, by process " + filepath.Base(file)
		}
	}
	return ""
}

// keptFiles lists the files outside of job folders that must stay. These are
// the checkpoints, unless p.discard is set, and the launcher's records of
// jobs, except of the jobs in forgotten.
func (p *pruner) keptFiles(forgotten []string) (kept []protocol.Pruned, err error) {
	records, err := filepath.Glob(filepath.Join(p.literal(), "jobs", "*", "*.json"))
	if err != nil {
		return nil, err
	}
	for _, record := range records {
		job := filepath.Base(filepath.Dir(record))
		if !slices.Contains(forgotten, job) {
			kept = append(kept, protocol.Pruned{Path: "jobs/" + job + "/" + filepath.Base(record), Outputs: 1})
		}
	}
	names, err := os.ReadDir(filepath.Join(p.root, "ckpt"))
	if p.discard || errors.Is(err, fs.ErrNotExist) {
		return kept, nil
	}
	for _, name := range names {
		item := protocol.Pruned{Path: "ckpt/" + name.Name()}
		walked := filepath.WalkDir(filepath.Join(p.root, item.Path), func(_ string, e fs.DirEntry, err error) error {
			if err != nil || e.IsDir() {
				return err
			}
			info, err := e.Info()
			if err == nil {
				item.Outputs, item.Bytes = item.Outputs+1, item.Bytes+info.Size()
			}
			return err
		})
		if err = errors.Join(err, walked); item.Outputs > 0 {
			kept = append(kept, item)
		}
	}
	return kept, err
}

// literal returns p.root with the special characters of glob patterns escaped.
func (p *pruner) literal() string {
	return strings.NewReplacer(`\`, `\\`, `*`, `\*`, `?`, `\?`, `[`, `\[`).Replace(p.root)
}

// keptJobs counts the job folders that must stay: the launcher has asked for
// that, or the user has not fetched the job's output files. unread lists the
// folders whose state file cannot be read.
func (p *pruner) keptJobs() (n int, unread []protocol.Pruned, err error) {
	states, err := filepath.Glob(filepath.Join(p.literal(), "jobs", "*", "*", "state.json"))
	for _, state := range states {
		f := jobfolder.Folder(filepath.Dir(state))
		if _, damaged := f.ReadState(); damaged != nil && !p.discard {
			unread = append(unread, protocol.Pruned{Path: "jobs/" + f.Job() + "/" + f.Name(), Outputs: 1, Job: f.Job(), Folder: f.Name(), Unchecked: strings.ToValidUTF8(damaged.Error(), "?")})
			continue
		}
		kept, failed := p.keep(f)
		if err = errors.Join(err, failed); kept || slices.Contains(p.keepJobs, f.Job()) {
			n++
		}
	}
	return n, unread, err
}

// removeAll removes ~/.plx. It first renames all entries into a new folder
// below ~/.plx, the lock file last. A launch that starts now then finds a host
// without plx and creates ~/.plx again. left names the new folder if some of
// its files could not be removed, such as this executable on a network file
// system. If an upload has just begun, removeAll removes nothing, and busy is
// the reason.
func (p *pruner) removeAll() (left, busy string, err error) {
	entries, err := os.ReadDir(p.root)
	if err != nil {
		return "", "", err
	}
	if p.dry {
		for _, e := range entries {
			err = errors.Join(err, p.removeEntry(p.root, e))
		}
		return "", "", err
	}
	away, err := os.MkdirTemp(p.root, jobfolder.LeavingMark+"*")
	if err != nil {
		return "", "", err
	}
	slices.SortStableFunc(entries, func(a, b fs.DirEntry) int { return removalOrder(a) - removalOrder(b) })
	for _, e := range entries {
		from, to := filepath.Join(p.root, e.Name()), filepath.Join(away, e.Name())
		if err := os.Rename(from, to); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return filepath.Base(away), "", err
		}
		if removalOrder(e) == binariesFirst && uploading(to) { // an upload of the plx binary has just begun: undo the rename
			return "", beingSent, errors.Join(os.Rename(to, from), os.Remove(away))
		}
	}
	for _, e := range entries {
		err = errors.Join(err, p.removeEntry(away, e))
	}
	if err = errors.Join(err, os.Remove(away)); err != nil {
		return filepath.Base(away), "", err
	}
	if info, err := os.Lstat(p.root); err == nil && info.IsDir() { // keep ~/.plx if the user has made it a symbolic link
		_ = os.Remove(p.root) // Remove fails if a new launch has put files into the folder
	}
	return "", "", nil
}

// binariesFirst is the result of removalOrder for the folder of plx binaries,
// which is removed first. It is the folder that a new launch needs first.
const binariesFirst = -1

// removalOrder returns a number that sorts the entries of ~/.plx into the order of
// removal: the plx binaries first, the lock last.
func removalOrder(e fs.DirEntry) int {
	switch e.Name() {
	case "blobs":
		return binariesFirst
	case jobfolder.LockName:
		return 1
	}
	return 0
}

// removeEntry removes the entry e of the folder with the path in. The report
// names the entry by its original path below ~/.plx, and lists each job's
// folder separately.
func (p *pruner) removeEntry(in string, e fs.DirEntry) error {
	path := filepath.Join(in, e.Name())
	if e.IsDir() && !p.dry {
		install.Unprotect(path) // make the folder writable: installed environments are read-only, and RemoveAll would fail
	}
	if e.Name() != "jobs" {
		return p.remove(path, filepath.Join(p.root, e.Name()))
	}
	jobs, err := os.ReadDir(path)
	for _, job := range jobs {
		err = errors.Join(err, p.remove(filepath.Join(path, job.Name()), filepath.Join(p.root, "jobs", job.Name())))
	}
	if !p.dry {
		err = errors.Join(err, os.Remove(path))
	}
	return err
}
