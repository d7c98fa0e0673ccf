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

// Holding is what one folder holds, the newest checkpoint first.
type Holding []Held

// Held is what one folder holds of a checkpoint.
type Held struct {
	ID       string           `json:"id"`
	Manifest *Manifest        `json:"manifest,omitempty"` // nil if the folder has no good manifest
	Damage   string           `json:"damage,omitempty"`   // why Manifest is nil; empty if it is set
	Files    map[string]int64 `json:"files,omitempty"`    // by name: size in bytes; the manifest is left out
}

// time is when the checkpoint was made; zero without a manifest.
func (h Held) time() time.Time {
	if h.Manifest == nil {
		return time.Time{}
	}
	return h.Manifest.Time
}

const unfinished = "no manifest: it was not finished"

// List returns what the folder holds. A damaged checkpoint is no error: see
// [Held.Damage]. List does not compare sizes with the manifest's, and sums
// neither: see [Candidates] and [Folder.Verify].
func (f *Folder) List() (Holding, error) {
	all, err := f.look()
	if err != nil {
		return nil, err
	}
	var holding Holding
	for _, s := range all {
		holding = append(holding, s.Held)
	}
	return holding, nil
}

// sight is a checkpoint as look finds it.
type sight struct {
	Held
	changed time.Time // last change of a file in the folder, or of the folder if it is empty
}

func (f *Folder) look() ([]sight, error) {
	entries, err := os.ReadDir(f.dir)
	if err != nil {
		return nil, fmt.Errorf("checkpoint folder %s: read it: %w", f.dir, cause(err))
	}
	var all []sight
	for _, e := range entries {
		if _, err := parseID(e.Name()); err != nil || !e.IsDir() {
			continue
		}
		s, err := f.sight(e.Name())
		if errors.Is(err, fs.ErrNotExist) { // removed meanwhile by another task
			continue
		}
		if err != nil {
			s = sight{Held: Held{ID: e.Name(), Damage: "folder: " + cause(err).Error()}}
		}
		all = append(all, s)
	}
	slices.SortFunc(all, func(a, b sight) int { return newestFirst(a.Held, b.Held) })
	return all, nil
}

func (f *Folder) sight(id string) (sight, error) {
	folder := filepath.Join(f.dir, id)
	s := sight{Held: Held{ID: id, Files: map[string]int64{}}}
	info, err := os.Stat(folder)
	if err != nil {
		return s, err
	}
	// The manifest comes first: if it is there, all files are.
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
		if err != nil { // removed or renamed meanwhile
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
	defer file.Close() // opened for reading: nothing to lose
	b, err := io.ReadAll(io.LimitReader(file, maxManifest+1))
	if err != nil {
		return nil, fmt.Errorf("manifest: %w", cause(err))
	}
	m, err := DecodeManifest(b)
	if err == nil && m.ID != filepath.Base(folder) {
		return nil, fmt.Errorf("manifest: it is of checkpoint %s", m.ID)
	}
	return m, err
}

// Retain removes all but the newest keep finished checkpoints and the best one, and unfinished
// and damaged ones older than the newest finished one. It returns the names of
// those that it has removed. It does not touch checkpoints newer than the newest
// finished one, nor the checkpoint busy; empty: none. Several tasks that share
// the folder may call it at the same time.
//
// After a restart from an older checkpoint, steps and times may disagree on
// which is the newest. Then the newest keep by either order stay.
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

// Discard removes the files of a checkpoint that will not be finished, for
// example because the disk is full. It refuses a checkpoint with a manifest.
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

// expired returns the names of the checkpoints that Retain removes, the newest
// first, as in all.
func expired(all []sight, keep int, busy string) []string {
	finished := slices.DeleteFunc(slices.Clone(all), func(s sight) bool { return !s.finished() })
	if len(finished) == 0 {
		return nil
	}
	newest := finished[0]
	kept := map[string]bool{busy: true}
	byTime := slices.SortedStableFunc(slices.Values(finished), func(a, b sight) int { return b.time().Compare(a.time()) })
	keep = min(keep, len(finished))
	for _, s := range slices.Concat(finished[:keep], byTime[:keep], highest(finished)) {
		kept[s.ID] = true
	}
	last := slices.MaxFunc(finished, func(a, b sight) int { return a.changed.Compare(b.changed) }).changed
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
	all, err := f.look()
	if err != nil {
		return "", err
	}
	best := highest(slices.DeleteFunc(all, func(s sight) bool { return !s.finished() }))
	if best == nil {
		return "", fmt.Errorf("checkpoint folder %s: no checkpoint in it has a score: the program gives it with Session.SaveIfBest", f.dir)
	}
	return best[0].ID, nil
}

// highest is the checkpoint with the highest score, of several the newest; none if the program
// gives no scores.
func highest(finished []sight) (one []sight) {
	for _, s := range finished {
		if s.Manifest.IsBest && (one == nil || *s.Manifest.Best > *one[0].Manifest.Best) {
			one = []sight{s}
		}
	}
	return one
}

// finished reports whether this folder shows nothing wrong with the checkpoint.
// Most of its files may be on other hosts.
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

// abandoned reports whether nobody will finish the checkpoint: it is older than
// the newest finished one by name, and nothing in it has changed since the last
// one was finished. The second condition matters after a restart from an older
// checkpoint, because steps are then counted from there again.
func (s sight) abandoned(newest sight, last time.Time) bool {
	return newestFirst(s.Held, newest.Held) > 0 && !s.changed.After(last)
}

// remove removes the manifest first, and flushes that, so that a half removed
// checkpoint never looks finished. It reports false if the folder stays, for
// example because another host has a file open.
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

// removeName returns nil if another task has removed the name.
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
