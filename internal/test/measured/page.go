package measured

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
)

// Insert puts a part into a page, between the lines that mark its place. A page
// that is not there is made, with a title.
func Insert(path, title, name, part string) error {
	begin, end := fmt.Sprintf("<!-- %s: begin -->\n", name), fmt.Sprintf("<!-- %s: end -->\n", name)
	text, err := os.ReadFile(path)
	if errors.Is(err, os.ErrNotExist) {
		text, err = []byte("# "+title+"\n\n"+begin+end), nil
	}
	if err != nil {
		return err
	}
	before, rest, found := strings.Cut(string(text), begin)
	_, after, ended := strings.Cut(rest, end)
	if !found || !ended {
		return fmt.Errorf("%s: the lines %q and %q are not there", path, strings.TrimSpace(begin), strings.TrimSpace(end))
	}
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		return err
	}
	return os.WriteFile(path, []byte(before+begin+part+end+after), 0o644)
}

// Save writes samples as JSON, into a file that appears whole or not at all.
func Save(path string, samples any) error {
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		return err
	}
	text, err := json.MarshalIndent(samples, "", " ")
	if err != nil {
		return err
	}
	next := path + ".new"
	if err := os.WriteFile(next, append(text, '\n'), 0o644); err != nil {
		return err
	}
	return os.Rename(next, path)
}

// Load reads what Save wrote.
func Load(path string, samples any) error {
	text, err := os.ReadFile(path)
	if err != nil {
		return err
	}
	if err := json.Unmarshal(text, samples); err != nil {
		return fmt.Errorf("%s: %w", path, err)
	}
	return nil
}
