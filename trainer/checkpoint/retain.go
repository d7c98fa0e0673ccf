package checkpoint

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"time"
)

// Retain removes all but the newest keep finished checkpoints, and what is
// left of unfinished and damaged ones before the newest finished one. It
// returns the names of those that are gone. It leaves alone what is newer than
// the newest finished one, and the checkpoint busy, "" for none. Several tasks
// that share the folder may do this at the same time.
//
// After a restart from an older checkpoint steps and times may disagree on
// what is newest: then the newest keep by either stay.
func (f *Folder) Retain(keep int, busy string) (removed []string, err error) {
	if keep < 1 {
		return nil, fmt.Errorf("checkpoint folder %s: keep %d checkpoints: want at least 1", f.dir, keep)
	}
	all, err := f.look()
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

// Discard removes what was written of a checkpoint that will not be finished,
// such as one for which the disk had no room. It refuses one with a manifest.
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

// expired are the names of what Retain removes, the newest first as in all.
func expired(all []sight, keep int, busy string) []string {
	finished := slices.DeleteFunc(slices.Clone(all), func(s sight) bool { return !s.finished() })
	if len(finished) == 0 {
		return nil
	}
	newest := finished[0]
	kept := map[string]bool{busy: true}
	keepFirst(kept, finished, keep)
	slices.SortStableFunc(finished, func(a, b sight) int { return b.time().Compare(a.time()) })
	keepFirst(kept, finished, keep)

	last := slices.MaxFunc(finished, func(a, b sight) int { return a.changed.Compare(b.changed) }).changed
	var ids []string
	for _, s := range all {
		if !kept[s.ID] && (s.finished() || s.abandoned(newest, last)) {
			ids = append(ids, s.ID)
		}
	}
	return ids
}

func keepFirst(kept map[string]bool, sights []sight, keep int) {
	for _, s := range sights[:min(keep, len(sights))] {
		kept[s.ID] = true
	}
}

// finished reports whether there is nothing wrong with the checkpoint as far
// as this folder shows: most files may be on other hosts.
func (s sight) finished() bool {
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

// abandoned reports whether nobody will finish the checkpoint: it is older
// than the newest finished one by name, and nothing in it changed since the
// last one was finished. The second matters after a restart from an older
// checkpoint, when steps are counted from there again.
func (s sight) abandoned(newest sight, last time.Time) bool {
	return newestFirst(s.Held, newest.Held) > 0 && !s.changed.After(last)
}

// remove takes the manifest away before anything else and for good, so that
// what is half removed never looks finished. It reports false where something
// keeps the folder from going, such as a file that another host has open.
func (f *Folder) remove(id string) (gone bool, err error) {
	folder := filepath.Join(f.dir, id)
	if err := f.removeName(filepath.Join(folder, manifestName)); err != nil {
		return false, err
	}
	if err := f.syncFolder(folder); err != nil {
		return errors.Is(err, fs.ErrNotExist), unlessGone(err)
	}
	entries, err := os.ReadDir(folder)
	if err != nil {
		return errors.Is(err, fs.ErrNotExist), unlessGone(err)
	}
	for _, e := range entries {
		if err := f.removeName(filepath.Join(folder, e.Name())); err != nil {
			return false, err
		}
	}
	if err := f.removeName(folder); err != nil {
		if errors.Is(err, fs.ErrExist) { // not empty
			return false, nil
		}
		return false, err
	}
	return true, nil
}

// removeName is content when another task has removed it.
func (f *Folder) removeName(path string) error {
	if err := f.hook("checkpoint.remove"); err != nil {
		return err
	}
	return unlessGone(os.Remove(path))
}

func unlessGone(err error) error {
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	return err
}
