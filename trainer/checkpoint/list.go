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
	Manifest *Manifest        `json:"manifest,omitempty"`
	Damage   string           `json:"damage,omitempty"` // why there is no manifest
	Files    map[string]int64 `json:"files,omitempty"`  // sizes by name, without the manifest
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
	path := filepath.Join(folder, manifestName)
	info, err := os.Lstat(path)
	if err != nil {
		return nil, err
	}
	switch {
	case !info.Mode().IsRegular(): // to open a pipe waits for its writer
		return nil, errors.New("manifest: it is not a regular file")
	case info.Size() > maxManifest:
		return nil, fmt.Errorf("manifest: more than %d bytes", maxManifest)
	}
	file, err := os.Open(path)
	if err != nil {
		return nil, err
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
