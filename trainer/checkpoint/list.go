package checkpoint

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"time"
)

// FolderCopies lists the checkpoints in one folder, the newest first.
type FolderCopies []FolderCopy

// FolderCopy is a checkpoint in one folder. The folder usually has only some of the
// checkpoint's files.
type FolderCopy struct {
	ID       string           `json:"id"`
	Manifest *Manifest        `json:"manifest,omitempty"` // the checkpoint's manifest; nil if this folder has none or a damaged one
	Damage   string           `json:"damage,omitempty"`   // why Manifest is nil; empty if it is set
	Files    map[string]int64 `json:"files,omitempty"`    // size in bytes of each data file, by file name; the manifest is not included
}

// time returns when the checkpoint was made, or the zero time if the manifest
// is missing.
func (h FolderCopy) time() time.Time {
	if h.Manifest == nil {
		return time.Time{}
	}
	return h.Manifest.Time
}

const unfinished = "no manifest: it was not finished"

// List returns the checkpoints in the folder. A damaged checkpoint is no
// error: its [FolderCopy.Damage] is set. List does not compare the files with the
// manifest. [Candidates] compares their sizes, and [Folder.Verify] their
// checksums.
func (f *Folder) List() (FolderCopies, error) {
	all, err := f.scan()
	if err != nil {
		return nil, err
	}
	var holding FolderCopies
	for _, s := range all {
		holding = append(holding, s.FolderCopy)
	}
	return holding, nil
}

// entry is a checkpoint found in the folder, with the time of its last change.
type entry struct {
	FolderCopy
	changed time.Time // newest modification time of the files in the checkpoint's folder, or of the folder if it is empty
}

func (f *Folder) scan() ([]entry, error) {
	entries, err := os.ReadDir(f.dir)
	if err != nil {
		return nil, fmt.Errorf("checkpoint folder %s: read it: %w", f.dir, cause(err))
	}
	var all []entry
	for _, e := range entries {
		if _, err := parseID(e.Name()); err != nil || !e.IsDir() {
			continue
		}
		s, err := f.entry(e.Name())
		if errors.Is(err, fs.ErrNotExist) { // another task has just removed this checkpoint
			continue
		}
		if err != nil {
			s = entry{FolderCopy: FolderCopy{ID: e.Name(), Damage: "folder: " + cause(err).Error()}}
		}
		all = append(all, s)
	}
	slices.SortFunc(all, func(a, b entry) int { return newestFirst(a.FolderCopy, b.FolderCopy) })
	return all, nil
}

func (f *Folder) entry(id string) (entry, error) {
	folder := filepath.Join(f.dir, id)
	s := entry{FolderCopy: FolderCopy{ID: id, Files: map[string]int64{}}}
	info, err := os.Stat(folder)
	if err != nil {
		return s, err
	}
	// Read the manifest before the list of files. A manifest is written last,
	// so if it exists, all files of this host exist too.
	s.Manifest, err = readManifest(folder)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		s.Damage = unfinished
	case err != nil:
		s.Damage = cause(err).Error()
	}
	entries, err := os.ReadDir(folder)
	if err != nil {
		return s, err
	}
	for _, e := range entries {
		info, err := e.Info()
		if err != nil { // another task has just removed or renamed this file
			continue
		}
		if info.ModTime().After(s.changed) {
			s.changed = info.ModTime()
		}
		if info.Mode().IsRegular() && checkName(e.Name()) == nil {
			s.Files[e.Name()] = info.Size()
		}
	}
	if len(entries) == 0 {
		s.changed = info.ModTime()
	}
	return s, nil
}

func readManifest(folder string) (*Manifest, error) {
	file, err := openRegular(filepath.Join(folder, manifestName))
	if err != nil {
		return nil, fmt.Errorf("manifest: %w", cause(err))
	}
	defer file.Close() // error ignored: the file was only read
	b, err := io.ReadAll(io.LimitReader(file, maxManifest+1))
	if err != nil {
		return nil, fmt.Errorf("manifest: %w", cause(err))
	}
	m, err := DecodeManifest(b)
	if err == nil && m.ID != filepath.Base(folder) {
		return nil, fmt.Errorf("manifest: it belongs to checkpoint %s", m.ID)
	}
	return m, err
}

// Retain removes old checkpoints from the folder, including unfinished and
// damaged ones, and returns their IDs. It keeps:
//
//   - the finished checkpoints with the highest steps, as many as keep says;
//   - the checkpoint with the best score;
//   - the checkpoint with the ID busy, which is being written ("" means none);
//   - all checkpoints that are newer than the newest finished one.
//
// After a restart from an older checkpoint, the order by step and the order by
// time may differ. Retain then keeps the newest keep checkpoints of each
// order. Tasks that share the folder may call Retain at the same time.
func (f *Folder) Retain(keep int, busy string) (removed []string, err error) {
	if keep < 1 {
		return nil, fmt.Errorf("checkpoint folder %s: keep %d checkpoints: want at least 1", f.dir, keep)
	}
	all, err := f.scan()
	if err != nil {
		return nil, err
	}
	var failures []error
	for _, id := range expired(all, keep, busy) {
		switch gone, err := f.remove(id); {
		case err != nil:
			failures = append(failures, fmt.Errorf("checkpoint %s: remove it from %s: %w", id, f.dir, cause(err)))
		case gone:
			removed = append(removed, id)
		}
	}
	if len(removed) > 0 {
		if err := f.syncFolder(f.dir); err != nil {
			failures = append(failures, fmt.Errorf("checkpoint folder %s: flush it: %w", f.dir, cause(err)))
		}
	}
	return removed, errors.Join(failures...)
}

// Discard removes the files of a checkpoint whose save has failed, for example
// because the disk is full. It refuses a checkpoint that has a manifest.
func (f *Folder) Discard(id string) error {
	if _, err := parseID(id); err != nil {
		return err
	}
	_, err := os.Lstat(filepath.Join(f.dir, id, manifestName))
	switch {
	case err == nil:
		err = errors.New("it has a manifest")
	case errors.Is(err, fs.ErrNotExist):
		_, err = f.remove(id)
	}
	if err != nil {
		return fmt.Errorf("checkpoint %s: discard it from %s: %w", id, f.dir, cause(err))
	}
	return nil
}

// expired returns the IDs of the checkpoints that Retain removes, in the same
// order as in the slice all.
func expired(all []entry, keep int, busy string) []string {
	finished := slices.DeleteFunc(slices.Clone(all), func(s entry) bool { return !s.finished() })
	if len(finished) == 0 {
		return nil
	}
	newest := finished[0]
	kept := map[string]bool{busy: true}
	byTime := slices.SortedStableFunc(slices.Values(finished), func(a, b entry) int { return b.time().Compare(a.time()) })
	keep = min(keep, len(finished))
	for _, s := range slices.Concat(finished[:keep], byTime[:keep], highest(finished)) {
		kept[s.ID] = true
	}
	last := slices.MaxFunc(finished, func(a, b entry) int { return a.changed.Compare(b.changed) }).changed
	var ids []string
	for _, s := range all {
		if !kept[s.ID] && (s.finished() || s.abandoned(newest, last)) {
			ids = append(ids, s.ID)
		}
	}
	return ids
}

// Best returns the ID of the checkpoint with the highest score.
func (f *Folder) Best() (id string, err error) {
	all, err := f.scan()
	if err != nil {
		return "", err
	}
	best := highest(slices.DeleteFunc(all, func(s entry) bool { return !s.finished() }))
	if best == nil {
		return "", fmt.Errorf("checkpoint folder %s: no checkpoint in it has a score: the program gives it with Session.SaveIfBest", f.dir)
	}
	return best[0].ID, nil
}

// highest returns the checkpoint with the highest score, as a slice of one
// element. If several have that score, it returns the newest of them. If no
// checkpoint has a score, it returns nil.
func highest(finished []entry) (one []entry) {
	for _, s := range finished {
		if s.Manifest.IsBest && (one == nil || *s.Manifest.Best > *one[0].Manifest.Best) {
			one = []entry{s}
		}
	}
	return one
}

// finished reports whether the checkpoint has a manifest in this folder, and
// no file here has a wrong size. Missing files do not matter, because they may
// be on other hosts.
func (s entry) finished() bool {
	if s.Manifest == nil {
		return false
	}
	for _, file := range s.Manifest.Files {
		if size, ok := s.Files[file.Name]; ok && size != file.Size {
			return false
		}
	}
	return true
}

// abandoned reports whether no task will finish the checkpoint. It returns
// true under two conditions: the checkpoint is older than newest, and no file
// in its folder has changed after last, the last change of any finished
// checkpoint. The second condition protects a checkpoint that is being written
// after a restart from an older checkpoint: its step is lower than that of
// newest.
func (s entry) abandoned(newest entry, last time.Time) bool {
	return newestFirst(s.FolderCopy, newest.FolderCopy) > 0 && !s.changed.After(last)
}

// remove deletes a checkpoint, the manifest first. It flushes the deletion of
// the manifest to disk before it deletes the files, so that a half deleted
// checkpoint never looks finished. It returns false if the folder remains, for
// example because another host has a file open.
func (f *Folder) remove(id string) (gone bool, err error) {
	folder := filepath.Join(f.dir, id)
	if err := f.removeName(filepath.Join(folder, manifestName)); err != nil {
		return false, err
	}
	if err := f.syncFolder(folder); err != nil {
		return errors.Is(err, fs.ErrNotExist), ignoreNotExist(err)
	}
	entries, err := os.ReadDir(folder)
	if err != nil {
		return errors.Is(err, fs.ErrNotExist), ignoreNotExist(err)
	}
	for _, e := range entries {
		if err := f.removeName(filepath.Join(folder, e.Name())); err != nil {
			return false, err
		}
	}
	if err := f.removeName(folder); err != nil {
		if errors.Is(err, fs.ErrExist) { // an error ErrExist means that the folder is not empty
			return false, nil
		}
		return false, err
	}
	return true, nil
}

// removeName deletes a file or an empty folder. It returns nil if another task
// has deleted it already.
func (f *Folder) removeName(path string) error {
	if err := f.hook("checkpoint.remove"); err != nil {
		return err
	}
	return ignoreNotExist(os.Remove(path))
}

func ignoreNotExist(err error) error {
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	return err
}
