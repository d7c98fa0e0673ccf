package submission

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/plx-run/plx/internal/atomicfile"
	"github.com/plx-run/plx/internal/bounded"
)

// Root returns ~/.plx/jobs, the directory that contains one directory per job.
func Root() (string, error) {
	home := os.Getenv("HOME")
	if home == "" {
		return "", errors.New("HOME is not set, so there is no place for ~/.plx")
	}
	return filepath.Join(home, ".plx", "jobs"), nil
}

// Folders returns the names of the entries of the folder ~/.plx/jobs. A job's
// directory there is named after the job's id.
func Folders() (names []string, err error) {
	jobs, err := Root()
	if err != nil {
		return nil, err
	}
	entries, err := os.ReadDir(jobs)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf("list jobs: %w", err)
	}
	for _, e := range entries {
		names = append(names, e.Name())
	}
	return names, nil
}

// Read decodes a JSON file in the directory of a job into content. name is the
// name of the file.
func Read(job, name string, content any) error {
	jobs, err := Root()
	if err != nil {
		return err
	}
	text, err := bounded.ReadFile(filepath.Join(jobs, job, name), bounded.Record)
	if err != nil {
		return err
	}
	return json.Unmarshal(text, content)
}

// Write encodes content into a JSON file in the directory of a job. name is
// the name of the file. The write is atomic. Write creates the directory if
// needed.
func Write(job, name string, content any) error {
	jobs, err := Root()
	if err != nil {
		return err
	}
	text, err := json.MarshalIndent(content, "", "\t")
	if err != nil {
		return err
	}
	own := filepath.Join(jobs, job)
	if err := os.MkdirAll(own, 0o700); err != nil {
		return err
	}
	return atomicfile.WriteFile(filepath.Join(own, name), append(text, '\n'), 0o600)
}
